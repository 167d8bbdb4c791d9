// Who is told what Perdure tells by webhook (docs/notifications.md): node dist/webhook.js PORT, the secret in PERDURE_WEBHOOK_SECRET.

import { createServer } from "node:http";
import { Webhook } from "standardwebhooks";
import type { WebhookMessage } from "./perdure.js";

const hook = new Webhook(process.env.PERDURE_WEBHOOK_SECRET ?? "");
const most = 2 ** 20;

const server = createServer(async (request, response) => {
  try {
    const parts: Buffer[] = [];
    let size = 0;
    for await (const part of request as AsyncIterable<Buffer>) {
      if ((size += part.length) > most) throw new Error("too large");
      parts.push(part);
    }
    // Of Perdure, and of the last five minutes; else it throws.
    const notice = hook.verify(Buffer.concat(parts), request.headers as Record<string, string>) as WebhookMessage;
    console.log(notice.event, notice.delivery_id, notice.words); // one that is sent again has the same notice.id
    response.writeHead(204).end();
  } catch {
    response.writeHead(401).end("not from Perdure\n");
  }
});
server.listen(Number(process.argv[2]), "127.0.0.1");
