// A worker and a start of the workflow in release.ts: node dist/child.js ID '{"repository": "https://…", "request": "…"}'

import { fileURLToPath } from "node:url";
import { Client, Connection, WorkflowFailedError } from "@temporalio/client";
import { loadClientConnectConfig } from "@temporalio/envconfig";
import { NativeConnection, Worker } from "@temporalio/worker";
import type { DeliveryRequest } from "./perdure.js";
import type { Release } from "./release.js";

const [workflowId = "", request = ""] = process.argv.slice(2);
const taskQueue = "releases";
const { connectionOptions, namespace: named } = loadClientConnectConfig(); // TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, …
const namespace = named ?? "default";
const [connection, native] = await Promise.all([
  Connection.connect(connectionOptions),
  NativeConnection.connect(connectionOptions),
]);
const worker = await Worker.create({
  connection: native,
  namespace,
  taskQueue,
  workflowsPath: fileURLToPath(new URL("release.js", import.meta.url)),
});
try {
  const args: [DeliveryRequest] = [JSON.parse(request) as DeliveryRequest];
  const client = new Client({ connection, namespace });
  console.log(await worker.runUntil(client.workflow.execute<typeof Release>("Release", { workflowId, taskQueue, args })));
} catch (error) {
  console.error(error instanceof WorkflowFailedError ? String(error.cause) : error);
  process.exitCode = 1;
} finally {
  await native.close();
  await connection.close();
}
