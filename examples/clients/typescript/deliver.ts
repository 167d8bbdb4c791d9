// Start a delivery or attach to it, approve its plan, print what came of it; or cancel it. Exit code 1: nothing did.
// node dist/deliver.js ID '{"repository": "https://…", "request": "…", "gates": ["plan"]}' | node dist/deliver.js ID cancel

import { setTimeout } from "node:timers/promises";
import { ApplicationFailure, Client, Connection, WithStartWorkflowOperation } from "@temporalio/client";
import { loadClientConnectConfig } from "@temporalio/envconfig";
import type { Approve, DeliveryAttached, DeliveryRequest, DeliveryResult, Progress, Say } from "./perdure.js";

type Delivery = (request: DeliveryRequest) => Promise<DeliveryResult>;

const [id = "", request = ""] = process.argv.slice(2);
const { connectionOptions, namespace } = loadClientConnectConfig(); // TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, …
const connection = await Connection.connect(connectionOptions);
const client = new Client({ connection, ...(namespace && { namespace }) });
const delivery = client.workflow.getHandle<Delivery>(id);
try {
  if (request === "cancel") {
    await delivery.cancel();
  } else {
    await start(JSON.parse(request) as DeliveryRequest);
    await follow();
  }
  show(await delivery.result());
} catch (error) {
  const cause = error instanceof Error ? error.cause : undefined; // of a failed workflow, of a refused update
  if (cause instanceof ApplicationFailure && cause.type === "NotDelivered") {
    show(cause.details?.[0] as DeliveryResult); // the same object, with status and reason
  } else {
    console.error(String(cause ?? error)); // InvalidRequest, or cancelled
  }
  process.exitCode = 1;
} finally {
  await connection.close();
}

function show(result: DeliveryResult): void {
  console.log(JSON.stringify(result));
}

/** Start the delivery, or find the one of that id, running or ended, in one call. */
async function start(request: DeliveryRequest): Promise<void> {
  const startWorkflowOperation = new WithStartWorkflowOperation<Delivery>("Delivery", {
    workflowId: id,
    taskQueue: "perdure",
    args: [request],
    workflowIdConflictPolicy: "USE_EXISTING", // it runs: attach
    workflowIdReusePolicy: "REJECT_DUPLICATE", // it has ended: not a second time
  });
  startWorkflowOperation.workflowHandle().catch(() => undefined); // its failure is the update's, too
  const attach = { args: [request] as [DeliveryRequest], updateId: "attach", startWorkflowOperation };
  // Nobody answers without a worker: it is recorded, once. A bad request is an InvalidRequest, which names the field.
  const there = await client.withDeadline(Date.now() + 10_000, () =>
    client.workflow.executeUpdateWithStart<Delivery, DeliveryAttached, [DeliveryRequest]>("attach", attach),
  );
  console.log("attached", id, there.repository, there.request); // of the delivery that was there, where one was: compare
}

/** Print where it stands until it has ended; approve its plan, with a word for its next turn. */
async function follow(): Promise<void> {
  for (let shown: string | null | undefined; ; await setTimeout(300)) {
    const { status, phase, asked } = await delivery.query<Progress>("progress");
    if (status !== "running" && status !== "waiting") return;
    if (asked?.gate === "plan") {
      await delivery.signal<[Say]>("say", { id: "note-1", text: "Mind the sign" });
      await delivery.executeUpdate<string, [Approve]>("approve", { args: [{ of: asked.of }] });
      console.log("approved", asked.of);
    }
    if (phase !== shown) console.log("phase", (shown = phase));
  }
}
