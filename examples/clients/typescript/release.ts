// The workflow of child.ts: it has a delivery as its child, waits for it, and cancels it when it is cancelled itself.

import { executeChild, workflowInfo } from "@temporalio/workflow";
import type { DeliveryRequest, DeliveryResult } from "./perdure.js";

/** Gives the pull request's URL. A delivery that ended without delivering fails this workflow, too. */
export async function Release(request: DeliveryRequest): Promise<string | undefined> {
  const result = await executeChild<(request: DeliveryRequest) => Promise<DeliveryResult>>("Delivery", {
    args: [request],
    workflowId: `${workflowInfo().workflowId}-delivery`, // the same for every attempt and replay
    taskQueue: "perdure",
    cancellationType: "WAIT_CANCELLATION_COMPLETED", // until it has tidied up
    parentClosePolicy: "REQUEST_CANCEL", // likewise where this one is terminated
  });
  return result.pull_request?.url;
}
