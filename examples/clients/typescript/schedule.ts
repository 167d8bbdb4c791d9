// A delivery every night at three: a Temporal schedule, which begins none while the last one runs.
// node dist/schedule.js ID '{"repository": "https://…", "request": "…"}'
// What it starts is called ID with the time: ID-2026-11-28T03:00:00Z.

import { Client, Connection } from "@temporalio/client";
import { loadClientConnectConfig } from "@temporalio/envconfig";
import type { DeliveryRequest } from "./perdure.js";

const [scheduleId = "", request = ""] = process.argv.slice(2);
const { connectionOptions, namespace } = loadClientConnectConfig(); // TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, …
const connection = await Connection.connect(connectionOptions);
await new Client({ connection, ...(namespace && { namespace }) }).schedule.create({
  scheduleId,
  spec: { calendars: [{ hour: 3 }], timezone: "Europe/Berlin" },
  action: {
    type: "startWorkflow",
    workflowType: "Delivery",
    workflowId: scheduleId,
    taskQueue: "perdure",
    args: [JSON.parse(request) as DeliveryRequest],
  },
  policies: { overlap: "SKIP" },
});
console.log("scheduled", scheduleId);
await connection.close();
