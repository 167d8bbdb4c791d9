package clients;

import com.fasterxml.jackson.databind.ObjectMapper;
import io.temporal.api.enums.v1.ScheduleOverlapPolicy;
import io.temporal.client.WorkflowOptions;
import io.temporal.client.schedules.*;
import io.temporal.envconfig.ClientConfigProfile;
import io.temporal.serviceclient.WorkflowServiceStubs;
import java.util.List;

/**
 * A delivery every night at three: a Temporal schedule, which begins none while the last one runs.
 * Nightly ID '{"repository": "https://…", "request": "…"}'
 * What it starts is called ID with the time: ID-2026-11-28T03:00:00Z.
 */
public class Nightly {
  public static void main(String[] args) throws Exception {
    ClientConfigProfile profile = ClientConfigProfile.load(); // TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, …
    WorkflowServiceStubs service = WorkflowServiceStubs.newServiceStubs(profile.toWorkflowServiceStubsOptions());
    String namespace = profile.toWorkflowClientOptions().getNamespace();
    ScheduleClient schedules = ScheduleClient.newInstance(service,
        ScheduleClientOptions.newBuilder().setNamespace(namespace == null ? "default" : namespace).build());
    ScheduleActionStartWorkflow action = ScheduleActionStartWorkflow.newBuilder()
        .setWorkflowType("Delivery")
        .setArguments(new ObjectMapper().readTree(args[1]))
        .setOptions(WorkflowOptions.newBuilder().setWorkflowId(args[0]).setTaskQueue("perdure").build())
        .build();
    ScheduleCalendarSpec night = ScheduleCalendarSpec.newBuilder().setHour(List.of(new ScheduleRange(3))).build();
    schedules.createSchedule(args[0], Schedule.newBuilder()
        .setAction(action)
        .setSpec(ScheduleSpec.newBuilder().setCalendars(List.of(night)).setTimeZoneName("Europe/Berlin").build())
        .setPolicy(SchedulePolicy.newBuilder().setOverlap(ScheduleOverlapPolicy.SCHEDULE_OVERLAP_POLICY_SKIP).build())
        .build(), ScheduleOptions.newBuilder().build());
    System.out.println("scheduled " + args[0]);
    System.exit(0);
  }
}
