// Perdure for a TypeScript program: nothing but @temporalio/client and the types in perdure.ts. Copy both files.

import {
  ApplicationFailure,
  Client,
  WithStartWorkflowOperation,
  WorkflowExecutionAlreadyStartedError,
  WorkflowFailedError,
  WorkflowNotFoundError,
  WorkflowUpdateFailedError,
  WorkflowUpdateRPCTimeoutOrCancelledError,
} from "@temporalio/client";
import type { AddBudget, Answer, Approve, DeliveryAttached, DeliveryRequest, DeliveryResult, Progress, Reject } from "./perdure.js";

type Delivery = (request: DeliveryRequest) => Promise<DeliveryResult>;

const NO_WORKER_MS = 5_000;

/** What Perdure refused, in its own words: a request (InvalidRequest, the field is named) or a decision (NotCounted). */
export class Refused extends Error {
  constructor(readonly type: string, message: string) {
    super(message);
  }
}

/** A delivery that ended without delivering: why, and everything that is known of it. */
export class NotDelivered extends Error {
  constructor(readonly result: DeliveryResult) {
    super(`${result.status}${result.reason ? ` (${result.reason})` : ""}: ${result.message}`);
  }
}

/** What an update can say to a delivery, by its name. */
export interface Decisions {
  approve: Approve;
  reject: Reject;
  answer: Answer;
  add_budget: AddBudget;
}

export class Perdure {
  constructor(private readonly client: Client) {}

  /**
   * Start a delivery, or attach to the one of that id, running or ended, in one call. Throws Refused for a bad request.
   * null: it is recorded, and no worker has looked at it yet; the next one begins with it.
   */
  async submit(id: string, request: DeliveryRequest): Promise<DeliveryAttached | null> {
    const startWorkflowOperation = new WithStartWorkflowOperation<Delivery>("Delivery", {
      workflowId: id,
      taskQueue: "perdure",
      args: [request],
      workflowIdConflictPolicy: "USE_EXISTING", // it runs: attach
      workflowIdReusePolicy: "REJECT_DUPLICATE", // it has ended: never a second time
    });
    startWorkflowOperation.workflowHandle().catch(() => undefined); // its failure is the update's, too
    try {
      const there = await this.client.withDeadline(Date.now() + NO_WORKER_MS, () =>
        this.client.workflow.executeUpdateWithStart<Delivery, DeliveryAttached, [DeliveryRequest]>("attach", {
          args: [request],
          updateId: "attach", // under another id every call would be written into history; under this one, the first is
          startWorkflowOperation,
        }),
      );
      if (there.repository !== request.repository) {
        throw new Refused("InvalidRequest", `${id} is taken by another repository, ${there.repository}`);
      }
      const words = request.request?.split(/\s+/).filter(Boolean).join(" ") ?? "";
      if (!request.issue && there.request !== [...words].slice(0, 200).join("")) {
        throw new Refused("InvalidRequest", `${id} is taken by another request there, ${there.request}`);
      }
      return there;
    } catch (error) {
      if (error instanceof WorkflowUpdateRPCTimeoutOrCancelledError) return null;
      throw refusal(error);
    }
  }

  async progress(id: string): Promise<Progress> {
    return await this.client.workflow.getHandle(id).query<Progress>("progress");
  }

  /** Decide what it waits for (Progress.asked names it in `of`), or add to its budget; the answer says what was counted. */
  async decide<Name extends keyof Decisions>(id: string, name: Name, said: Decisions[Name]): Promise<string> {
    try {
      return await this.client.workflow.getHandle(id).executeUpdate<string, [unknown]>(name, { args: [said] });
    } catch (error) {
      if (error instanceof WorkflowNotFoundError) throw new Refused("Ended", `${id} has ended, or there is none`);
      throw refusal(error);
    }
  }

  /** Words for the next turn; the same id is heard once. */
  async say(id: string, text: string, said: string): Promise<void> {
    await this.client.workflow.getHandle(id).signal("say", { text, id: said });
  }

  /** Wait for the end. Throws NotDelivered with the result, or Refused for a bad request. */
  async result(id: string): Promise<DeliveryResult> {
    try {
      return (await this.client.workflow.getHandle(id).result()) as DeliveryResult;
    } catch (error) {
      const cause = error instanceof WorkflowFailedError ? error.cause : undefined;
      if (cause instanceof ApplicationFailure && cause.type === "NotDelivered" && cause.details?.[0]) {
        throw new NotDelivered(cause.details[0] as DeliveryResult);
      }
      throw cause instanceof ApplicationFailure ? new Refused(cause.type ?? "", cause.message) : error;
    }
  }
}

function refusal(error: unknown): unknown {
  if (error instanceof WorkflowUpdateFailedError && error.cause instanceof ApplicationFailure) {
    return new Refused(error.cause.type ?? "", error.cause.message);
  }
  if (error instanceof WorkflowExecutionAlreadyStartedError) {
    return new Refused("Ended", "a delivery of this id has ended, before anybody attached: read its result");
  }
  return error;
}
