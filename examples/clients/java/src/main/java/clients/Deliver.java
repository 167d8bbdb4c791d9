package clients;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.temporal.api.enums.v1.WorkflowIdConflictPolicy;
import io.temporal.api.enums.v1.WorkflowIdReusePolicy;
import io.temporal.client.*;
import io.temporal.envconfig.ClientConfigProfile;
import io.temporal.failure.ApplicationFailure;
import io.temporal.serviceclient.WorkflowServiceStubs;
import java.util.*;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import perdure.Types.*;

/**
 * Start a delivery or attach to it, approve its plan, print what came of it; or cancel it. Exit code 1: nothing did.
 * Deliver ID '{"repository": "https://…", "request": "…", "gates": ["plan"]}' | Deliver ID cancel
 */
public class Deliver {
  static final ObjectMapper JSON = new ObjectMapper();
  static final Set<ProgressStatus> GOES_ON = Set.of(ProgressStatus.RUNNING, ProgressStatus.WAITING);

  public static void main(String[] args) throws Exception {
    ClientConfigProfile profile = ClientConfigProfile.load(); // TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, …
    WorkflowServiceStubs service = WorkflowServiceStubs.newServiceStubs(profile.toWorkflowServiceStubsOptions());
    WorkflowClient client = WorkflowClient.newInstance(service, profile.toWorkflowClientOptions());
    WorkflowStub delivery = client.newUntypedWorkflowStub(args[0]);
    int code = 1;
    try {
      if (args[1].equals("cancel")) {
        delivery.cancel();
      } else {
        start(client, args[0], JSON.readTree(args[1]));
        follow(delivery);
      }
      System.out.println(JSON.writeValueAsString(delivery.getResult(DeliveryResult.class)));
      code = 0;
    } catch (Exception error) {
      Throwable cause = error;
      while (cause.getCause() != null && !(cause instanceof ApplicationFailure)) cause = cause.getCause();
      if (cause instanceof ApplicationFailure failure && failure.getType().equals("NotDelivered")) {
        // The same object, with status and reason.
        System.out.println(JSON.writeValueAsString(failure.getDetails().get(DeliveryResult.class)));
      } else {
        System.err.println(cause); // InvalidRequest, or cancelled
      }
    }
    System.exit(code);
  }

  /** Start the delivery, or find the one of that id, running or ended, in one call. */
  static void start(WorkflowClient client, String id, JsonNode request) throws Exception {
    WorkflowStub start = client.newUntypedWorkflowStub("Delivery",
        WorkflowOptions.newBuilder().setWorkflowId(id).setTaskQueue("perdure")
            .setWorkflowIdConflictPolicy(WorkflowIdConflictPolicy.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING) // it runs: attach
            .setWorkflowIdReusePolicy(WorkflowIdReusePolicy.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE) // it has ended: not again
            .build());
    UpdateOptions<DeliveryAttached> attach = UpdateOptions.newBuilder(DeliveryAttached.class)
        .setUpdateName("attach").setUpdateId("attach").setWaitForStage(WorkflowUpdateStage.COMPLETED).build();
    // Nobody answers without a worker: it is recorded, once. A bad request is an InvalidRequest, which names the field.
    DeliveryAttached there = CompletableFuture.supplyAsync(
        () -> start.executeUpdateWithStart(attach, new Object[] {request}, new Object[] {request})).get(30, TimeUnit.SECONDS);
    System.out.println("attached " + id + " " + there.repository + " " + there.request); // of the one that was there: compare
  }

  /** Print where it stands until it has ended; approve its plan, with a word for its next turn. */
  static void follow(WorkflowStub delivery) throws Exception {
    String shown = null;
    for (Progress progress; GOES_ON.contains((progress = delivery.query("progress", Progress.class)).status); Thread.sleep(300)) {
      if (progress.asked != null && progress.asked.gate == Gate.PLAN) {
        delivery.signal("say", Map.of("id", "note-1", "text", "Mind the sign"));
        delivery.update("approve", String.class, Map.of("of", progress.asked.of));
        System.out.println("approved " + progress.asked.of);
      }
      if (progress.phase != null && !progress.phase.equals(shown)) System.out.println("phase " + (shown = progress.phase));
    }
  }
}
