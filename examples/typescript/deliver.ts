// node dist/deliver.js submit ID '{"repository": …, "request": …}' | progress ID | approve ID ['{"of": …}'] | result ID

import { Client, Connection } from "@temporalio/client";
import { NotDelivered, Perdure, Refused } from "./client.js";
import type { Approve, DeliveryRequest } from "./perdure.js";

const [command, id = "", json = "{}"] = process.argv.slice(2);
const connection = await Connection.connect({ address: process.env.TEMPORAL_ADDRESS ?? "127.0.0.1:7233" });
const perdure = new Perdure(new Client({ connection }));
try {
  switch (command) {
    case "submit":
      show(await perdure.submit(id, JSON.parse(json) as DeliveryRequest));
      break;
    case "progress":
      show(await perdure.progress(id));
      break;
    case "approve":
      show(await perdure.decide(id, "approve", JSON.parse(json) as Approve));
      break;
    case "result":
      show(await perdure.result(id));
      break;
    default:
      throw new Error("submit, progress, approve or result");
  }
} catch (error) {
  if (error instanceof NotDelivered) show({ not_delivered: error.result });
  else if (error instanceof Refused) show({ refused: error.type, message: error.message });
  else throw error;
  process.exitCode = 1;
} finally {
  await connection.close();
}

function show(value: unknown): void {
  console.log(JSON.stringify(value));
}
