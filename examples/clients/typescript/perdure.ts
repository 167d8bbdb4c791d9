// What a delivery takes and gives, as in docs/schema. Made by `make schema`: do not edit.
// A field that may be left out has a question mark; null is null.

/** One request that shall become one pull request. Only `repository` and `request` (or `issue`) are required; null counts as left out. */
export interface DeliveryRequest {
  /** path, file://, https://, ssh:// or scp-like address of the target, at most 2,048 bytes */
  repository: string;
  /** what is wanted, in words; at most 64 KiB; may be left out when an issue says it all, and where an existing branch is only tested, published, or reviewed against a plan */
  request?: string;
  /** branch to start from and to merge into; default: the target's default branch */
  base?: string | null;
  /** which of plan, build, test, review, ship; default: the repository's setting, else all */
  phases?: Phase[] | null;
  /** before which of plan, pull_request a person decides; beside those of the repository's settings. Phase plan, or phase ship or `push`, has to be selected */
  gates?: RequestGate[];
  /** may lower the configured budget, and raise it up to the host's limit */
  budget_usd?: number | null;
  /** the same for tokens, read and written together; there is no limit unless one is configured */
  tokens?: number | null;
  /** false: nobody is asked. Agents decide, and list in the pull request what they assumed; tests that cannot be told from those that failed on the base make a draft */
  questions?: boolean | null;
  /** put on the pull request, beside those of the settings; a budget may be shared by label. Together at most 1,800 bytes, as JSON in ASCII */
  labels?: string[];
  /** an open issue of the repository that says what is wanted: "12", "#12" or its address; a number is taken, too */
  issue?: string | null;
  /** an existing branch to work on instead of starting from the base */
  branch?: string | null;
  /** a plan in Markdown, used instead of making one */
  plan?: string | null;
  /** the request itself is about tests */
  allow_test_changes?: boolean;
  /** true, null: red tests and blockers are mended; false: they are only reported */
  fix?: boolean | null;
  /** push the branch's new commits although no pull request is asked for */
  push?: boolean;
  /** of this shape: 1 */
  spec_version?: number;
  /** one model for every step, overriding configuration */
  model?: string | null;
  /** one agent for every step, likewise: "built-in", or a preset that its host has */
  agent?: string | null;
  /** at the plan, 1 to 5: each is built and judged by itself, and the best one is taken */
  attempts?: number | null;
  /** the other attempts begin only when the first one is no good */
  after_red?: boolean | null;
  /** text of a perdure.toml to use instead of the base branch's */
  config?: string | null;
  /** the submitter's checkout, for `[setup] copy`; counts with `proof` only */
  source?: string | null;
  /** set by the command line and by clients that have this home's key (docs/submitting.md): without it no path of the worker's host counts, but for repositories its owner's settings allow */
  proof?: string | null;
  /** task queue of the host whose path `repository` or `source` is: it is prepared there. Set with `proof`; left out: any host prepares it */
  host?: string | null;
  /** set by a backlog: its change lands there, instead of a pull request */
  landing?: LandingPlace | null;
  /** set by `perdure retry`: go on where another run ended */
  resume?: ResumePoint | null;
  /** set by `perdure fork`: the turn of another delivery before which this one begins */
  forked?: ForkedFrom | null;
}

/** set by a backlog: its change lands there, instead of a pull request */
export interface LandingPlace {
  /** its workflow id */
  backlog: string;
  item: string;
  /** the integration branch, into which it goes where the branch it began from is gone by then */
  branch: string;
  /** the item's, its agents are told */
  role?: string;
  /** it lands nothing, but says which items it consists of (BacklogItem) */
  decompose?: DecomposeMode | null;
  /** it is a task of that delivery, and lands in its vault */
  within?: ParentDelivery | null;
  /** it is one of a stack, and opens a pull request of its own */
  ships?: boolean;
}

/** it lands nothing, but says which items it consists of (BacklogItem) */
export type DecomposeMode = "ask" | "go";

/** it is a task of that delivery, and lands in its vault */
export interface ParentDelivery {
  /** its key */
  delivery: string;
  /** artifact of its Contract, whose copy the task runs under */
  terms: string;
  /** artifact of the whole plan */
  plan: string;
  /** its number there, from 1 */
  task?: number;
  /** its title */
  title?: string;
  /** of the request, for the commit */
  kind?: string;
  /** of the host that has its vault */
  queue: string;
  /** the most the task may use; 0: no limit */
  tokens?: number;
}

/** set by `perdure retry`: go on where another run ended */
export interface ResumePoint {
  run_id: string;
  /** in the shape of `DeliveryState` */
  state: Record<string, unknown>;
  /** the same delivery goes on in a new run because its history grew long; nothing is prepared anew and no count begins again */
  continued?: boolean;
  /** the turn that it went back to, where it did */
  rewound?: string;
  /** the words and the model with which */
  asked?: Record<string, string>;
}

/** set by `perdure fork`: the turn of another delivery before which this one begins */
export interface ForkedFrom {
  /** the other one's workflow id */
  delivery: string;
  /** its turn, `implement:4` */
  at: string;
  /** what that turn began with */
  checkpoint: string;
  /** of the host that has it */
  queue: string;
  /** the newest commit by then, empty: there was none */
  head?: string;
  /** its number among several at one plan, which that delivery begins itself and chooses from; 0: it is none */
  attempt?: number;
  /** taken and paid for by the other delivery before: its cost, never the sibling's; null: not known */
  turns?: number;
  /** taken and paid for by the other delivery before: its cost, never the sibling's; null: not known */
  usd?: number | null;
}

/**
 * A part of a delivery that a user can select, skip or run alone; `land` comes in the place of `ship` where it is
 * part of a backlog, and is never selected.
 */
export type Phase = "plan" | "build" | "test" | "review" | "ship" | "land";

export type RequestGate = "plan" | "pull_request";

/** Let it go on as it is. `note` is kept with the decision. */
export interface Approve {
  /** what it decides, as the delivery named it; left out: whatever it waits for when the decision arrives */
  of?: string;
  /** likewise, by its kind */
  gate?: Gate | null;
  /** who decides, for the record */
  by?: string;
  note?: string;
}

/** likewise, by its kind */
export type Gate = "plan" | "items" | "tests" | "pull_request" | "budget" | "question" | "deaths" | "landing";

/** `note` says why: it is what planning or fixing goes back with. */
export interface Reject {
  /** what it decides, as the delivery named it; left out: whatever it waits for when the decision arrives */
  of?: string;
  /** likewise, by its kind */
  gate?: Gate | null;
  /** who decides, for the record */
  by?: string;
  note: string;
}

/** `plan`: SHA-256 of the edited plan, an artifact of the delivery that `perdure approve --edit` has stored. */
export interface EditPlan {
  /** what it decides, as the delivery named it; left out: whatever it waits for when the decision arrives */
  of?: string;
  /** likewise, by its kind */
  gate?: Gate | null;
  /** who decides, for the record */
  by?: string;
  plan: string;
  title?: string;
}

/** The answer to an agent's question: its next turn reads it. One of the choices where there are some, yes or no. */
export interface Answer {
  /** what it decides, as the delivery named it; left out: whatever it waits for when the decision arrives */
  of?: string;
  /** likewise, by its kind */
  gate?: Gate | null;
  /** who decides, for the record */
  by?: string;
  answer: string;
}

/** More to spend, at any time: dollars (0.01 at least), tokens, wall time. The same `id` twice is counted once. */
export interface AddBudget {
  /** what it decides, as the delivery named it; left out: whatever it waits for when the decision arrives */
  of?: string;
  /** likewise, by its kind */
  gate?: Gate | null;
  /** who decides, for the record */
  by?: string;
  id?: string;
  usd?: number;
  tokens?: number;
  time?: string | null;
}

/** Words for the next turn. The same `id` twice is heard once; without one every signal counts. */
export interface Say {
  text: string;
  id?: string;
}

/** Begin no further turn. `note`: why, for those who wonder; `by`: who says so. */
export interface Hold {
  note?: string;
  by?: string;
}

/** Go on after a hold. */
export type Resume = Record<string, never>;

/** A reset to an earlier turn follows: the run of that id begins no further turn meanwhile. The run that the reset makes forgets what was said and held before, and hears `text`. */
export interface Rewind {
  from_run: string;
  /** the turn, for people */
  to?: string;
  text?: string;
  id?: string;
  /** when it began the first time, the time from then on is not the delivery's */
  since?: string | null;
  /** the terms from there on, made by the delivery's host, where model or agent are others */
  policy?: string;
  /** by step */
  models?: Record<string, string>;
  /** those of them whose price nobody knows */
  unpriced?: string[];
  /** as they were asked for, so that the same rewind is known again */
  model?: string;
  /** as they were asked for, so that the same rewind is known again */
  agent?: string;
}

/** A decision sent as a signal because no worker took the update: `update` names it; `of`, or for `add_budget` an `id`, must be in `said`, so that it counts once however often and by whatever way it comes. */
export interface Decide {
  update: DecisionUpdate;
  said: Record<string, unknown>;
}

export type DecisionUpdate = "approve" | "reject" | "edit_plan" | "answer" | "add_budget";

/** Many requests that shall land on one integration branch. */
export interface BacklogRequest {
  /** as for a delivery */
  repository: string;
  items?: BacklogItem[];
  /** open issues that are items, too, as of when it begins: label:bug, milestone:1.0 or search:"…" */
  issues?: string | null;
  /** the branch it begins from and its pull request goes into; default: the target's default branch */
  base?: string | null;
  /** the integration branch; default: `perdure/<backlog id>` */
  branch?: string | null;
  /** branch: one integration branch, one pull request at the end; stack: a pull request for each item, into the branch of the one it depends on */
  land?: LandingMode;
  /** deliveries at once */
  parallel?: number;
  /** the most all of them may spend together; left out: each has its own budget only */
  budget_usd?: number | null;
  /** hours in which deliveries may begin: "23:00-07:00" in UTC, "23:00-07:00 +02:00", "23:00-07:00 Europe/Berlin"; left out: always */
  window?: string | null;
  /** wait: items whose `touches` meet are built one after the other; build: at the same time */
  overlap?: OverlapRule;
  /** as in a delivery's request, for each item that says nothing else */
  attempts?: number | null;
  /** as in a delivery's request, for each item that says nothing else */
  after_red?: boolean | null;
  /** as in a delivery's request, for each of them */
  gates?: RequestGate[];
  /** as in a delivery's request, for each of them */
  questions?: boolean | null;
  /** as in a delivery's request, for each of them */
  labels?: string[];
  /** as in a delivery's request, for each of them */
  model?: string | null;
  /** as in a delivery's request, for each of them */
  agent?: string | null;
  /** as in a delivery's request, for each of them */
  config?: string | null;
  /** as in a delivery's request, for each of them */
  source?: string | null;
  /** as in a delivery's request, for each of them */
  proof?: string | null;
  /** as in a delivery's request, for each of them */
  host?: string | null;
  version?: number;
}

/** One item: it becomes one delivery, and one commit of the integration branch. */
export interface BacklogItem {
  /** names it: lower case letters, digits and dashes; left out with an issue: `issue-14` */
  id?: string;
  /** what is wanted, in words; may be left out where an issue says it all */
  request?: string;
  /** an open issue of the repository: "14", "#14" or its address; a number is taken, too */
  issue?: string | null;
  /** higher goes first among those that are ready; -100 to 100 */
  priority?: number;
  /** put on its delivery, and counted with those of the backlog */
  labels?: string[];
  /** its agents are told so: frontend, test, …; with the repository's `.perdure/prompts/role-<role>.md`, where there is one; empty: nobody's in particular */
  role?: string;
  /** ids of items that have to land before it begins */
  depends_on?: string[];
  /** files it is expected to change, as in .gitignore: src/api/**, *.md; items whose patterns meet are not built at the same time */
  touches?: string[];
  /** commands that hold once it has landed, and in every landing after it */
  check?: string[];
  /** the most its delivery may spend; left out: an equal share of what the backlog has left */
  budget_usd?: number | null;
  /** as in a delivery's request; left out: as the backlog's */
  attempts?: number | null;
  /** as in a delivery's request; left out: as the backlog's */
  after_red?: boolean | null;
  /** it is too large for one delivery: a planning step makes items of it, which take its place. ask: a person approves or edits them first (gate `items`); go: they begin at once */
  decompose?: DecomposeMode | null;
}

export type LandingMode = "branch" | "stack";

export type OverlapRule = "wait" | "build";

/** Updates `add` and `edit`: the whole item. */
export interface AddItem {
  item: BacklogItem;
}

/** Updates `skip`, `retry` and `cancel_item`. `item`: its id; `by`: who says so. */
export interface NamedItem {
  item: string;
  note?: string;
  by?: string;
}

/** Update `prioritise`. */
export interface PrioritisedItem {
  item: string;
  note?: string;
  by?: string;
  priority: number;
}

/** Update `approve` of a backlog. `item`: the item that waits; the rest as the delivery's own update takes it. */
export interface ApproveItem {
  /** what it decides, as the delivery named it; left out: whatever it waits for when the decision arrives */
  of?: string;
  /** likewise, by its kind */
  gate?: Gate | null;
  /** who decides, for the record */
  by?: string;
  note?: string;
  item: string;
}

/** Update `reject` of a backlog. `item`: the item that waits; the rest as the delivery's own update takes it. */
export interface RejectItem {
  /** what it decides, as the delivery named it; left out: whatever it waits for when the decision arrives */
  of?: string;
  /** likewise, by its kind */
  gate?: Gate | null;
  /** who decides, for the record */
  by?: string;
  note: string;
  item: string;
}

/** Update `edit_plan` of a backlog. `item`: the item that waits; the rest as the delivery's own update takes it. */
export interface EditPlanOfItem {
  /** what it decides, as the delivery named it; left out: whatever it waits for when the decision arrives */
  of?: string;
  /** likewise, by its kind */
  gate?: Gate | null;
  /** who decides, for the record */
  by?: string;
  plan: string;
  title?: string;
  item: string;
}

/** Update `answer` of a backlog. `item`: the item that waits; the rest as the delivery's own update takes it. */
export interface AnswerItem {
  /** what it decides, as the delivery named it; left out: whatever it waits for when the decision arrives */
  of?: string;
  /** likewise, by its kind */
  gate?: Gate | null;
  /** who decides, for the record */
  by?: string;
  answer: string;
  item: string;
}

/** Update `add_budget` of a backlog. `item`: one that runs; the rest as the delivery's own update takes it. */
export interface AddBudgetToItem {
  /** what it decides, as the delivery named it; left out: whatever it waits for when the decision arrives */
  of?: string;
  /** likewise, by its kind */
  gate?: Gate | null;
  /** who decides, for the record */
  by?: string;
  id?: string;
  usd?: number;
  tokens?: number;
  time?: string | null;
  item: string;
}

/** Update `follow`: look at the base again, now; or `leave` the branch where it stands. `by`: who says so. */
export interface Follow {
  leave?: boolean;
  note?: string;
  by?: string;
}

/** The end of a delivery, and what exists now. `plan`: its address, in the submitter's words or as it was made; `unread`: what people said and no turn has read, each cut to 200 characters, a retry's first turn reads it; `decisions`: the newest 20 of what people decided, in their order; `landed`: its commit on a backlog's branch; `items`: what a request consists of that was decomposed for a backlog; `attempts`: at the plan, where it had several. */
export interface DeliveryResult {
  delivery_id: string;
  run_id: string;
  spec_version: number;
  status: Status;
  /** The reason a delivery is `not_delivered`. */
  reason: Reason | null;
  message: string;
  repository: string;
  base: string | null;
  base_sha: string | null;
  branch: string | null;
  head_sha: string | null;
  checkpoint: string | null;
  pull_request: PullRequest | null;
  landed: string | null;
  items: BacklogItem[];
  attempts: AttemptResult[];
  plan: string | null;
  tests: TestsResult;
  review: ReviewResult;
  steps: StepRecord[];
  usage: UsageResult;
  receipt: Receipt;
  next: string[];
  unread: string[];
  decisions: DecisionMade[];
}

/** The reason a delivery is `not_delivered`. */
export type Reason = "tests_red" | "blockers" | "tampered" | "budget" | "refused" | "limits" | "plan_rejected" | "workspace_lost" | "setup_failed" | "forge_refused" | "invalid_request";

export interface PullRequest {
  number: number;
  url: string;
  title: string;
  draft: boolean;
}

/** The end of one attempt, the same whatever its worker survived on the way. */
export interface AttemptResult {
  /** from 1 */
  number: number;
  /** its workflow id, the delivery's own where it was that one's */
  delivery: string;
  /** where its commits stay */
  branch: string;
  /** the newest of them, empty where it has none */
  head: string;
  /** how it ended, in one line; empty: well */
  words: string;
  /** the verdict on exactly `head` */
  tests: TestsStatus;
  /** of exactly `head`, the engine's own findings in it */
  review: ReviewResult;
  /** added and removed from base to head: the change that was reviewed */
  lines: number;
  /** of its own replies, not of the plan before it; null: a price is not known */
  cost_usd: number | null;
  /** the delivery went on with this one */
  chosen: boolean;
}

/** The decision of a person: `of` names a plan, a commit, a question or a limit, by `gate`; `note` is cut. */
export interface DecisionMade {
  gate: string;
  of: string;
  verdict: string;
  by: string;
  note: string;
}

/** The record of what the delivery survived. */
export interface Receipt {
  /** workers that died while they worked on this delivery */
  worker_deaths: number;
  /** turns that were cut off and done again from their checkpoint */
  turns_redone: number;
  /** replies that were received whole, written down, and asked for again (0 by design) */
  replies_paid_twice: number;
  /** requests cut off (by a death, a cancellation, the line) before the reply was whole: possibly billed, never counted as free */
  replies_cut: number;
  /** what was shown of the tree that was tested: the base's own tests on it, its tests without the change, canaries; empty: not tried */
  experiment: string;
  /** the delivery and its turn that it began before, `night at implement:4`; empty: it is no fork */
  forked_from: string;
  /** of that delivery, until then: it has paid, this is no part of this one's cost; null: not known */
  inherited_turns: number;
  /** of that delivery, until then: it has paid, this is no part of this one's cost; null: not known */
  inherited_usd: number | null;
}

/** Counts of what the reviewer and the engine found. `findings`: the engine's own, `report`: the reviewer's. */
export interface ReviewResult {
  status: ReviewStatus;
  blockers: number;
  tech_debt: number;
  skippable: number;
  report: string | null;
  findings: string | null;
}

export type ReviewStatus = "clean" | "blocked" | "skipped";

/** The ways in which a delivery ends. */
export type Status = "delivered" | "draft" | "completed" | "not_delivered" | "no_changes" | "cancelled";

/** One step as it happened. */
export interface StepRecord {
  /** a Step's name; commit is a record of its own after implement, fix_tests and fix_review */
  step: string;
  attempt: number;
  /** running, done, cancelled, or failed (run_tests: red; review: blockers found; others: it did not end well, and summary says why) */
  status: string;
  /** RFC 3339 in UTC */
  started_at: string | null;
  /** in seconds */
  duration_s: number | null;
  turns: number;
  commit: string | null;
  /** prepare "setup 17 s · 41 green", plan "feature · 3 tasks, 2 files", implement the model's last line, commit "+48 −7 in 2 files", run_tests "44 green", review "1 blocker, 1 tech debt", open_pull_request "pull request #12" */
  summary: string;
  /** null when a price is not known */
  cost_usd: number | null;
}

/** `none`: no test command exists. `skipped`: not selected. `tree_sha`: the git tree that was tested. */
export interface TestsResult {
  status: TestsStatus;
  tree_sha: string | null;
  passed: number | null;
  failed: number | null;
  /** failed here and not on the base commit; null: cannot be told */
  new_failures: number | null;
  /** failed there too, and do not count as red */
  known_failures: number | null;
  /** failed there and passed here */
  fixed: number | null;
  /** failed, and passed when they were run once more, alone */
  flaky: number;
  /** runs that a signal ended which somebody had sent, and that were done again: no failures, no flakes */
  killed_runs: number;
  /** places where the change makes the tests say less than they did on the base */
  tampered: number;
  /** a person's word that red tests were red before, where nothing else can tell; else empty */
  accepted: string;
  /** `455/455 of the base's own tests pass on the change · 3 new tests fail without it · canaries caught`; empty: not tried */
  experiment: string;
  /** tests of the base that fail on the change, where it has changed them: each was justified by the request, or is a blocker */
  promises: number;
  report: string | null;
}

export type TestsStatus = "green" | "red" | "none" | "skipped";

export interface UsageResult {
  input_tokens: number;
  cache_read_tokens: number;
  cache_write_tokens: number;
  output_tokens: number;
  cost_usd: number | null;
  at_risk_usd: number;
}

/** One thing that happened. */
export interface Event {
  /** place in the stream of this delivery or backlog, from 0; the same whenever the stream is read */
  offset: number;
  /** UTC, as `2026-11-23T08:00:00.123Z` */
  time: string;
  /** id of the delivery; null where it is a backlog's own */
  delivery: string | null;
  /** id of the backlog it belongs to, or whose own it is; null without one */
  backlog: string | null;
  /** the backlog's item; null without one */
  item: string | null;
  /** see EventType, which names the fields of `data` */
  type: EventType;
  /** null where it is of no step; attempt, turn: as in the turn table, null where there is none */
  step: string | null;
  attempt: number | null;
  turn: number | null;
  data: Record<string, unknown>;
}

/**
 * The kinds of event; beside each, the fields of its `data`.
 * started      repository, request (its first line), begins (after a start delay or by a cron schedule; null: at once)
 * continued    by: `retry`, `rewind` or `length` (history goes on in another run)
 * phase        phase
 * step_started correction: true for a step that mends what tests or review found
 * activity     a turn of an agent: summary, checkpoint, cost_usd (null: unknown), spent_usd, waited_s, tries, read
 * step_ended   ending, summary
 * step_failed  why
 * commit       commit, files, added, deleted, summary
 * test_result  status, passed, failed, failures, summary
 * review       blocker, tech_debt, skippable, summary
 * question     text, options
 * gate         gate, of, words, options: somebody has to decide; with every field empty: nobody has to any more
 * waiting      why, until (null: it lasts)
 * decision     name (the update), said; by nobody else than who may reach Temporal
 * said         name (the signal), said
 * worker_death activity, tries, silent (nobody saw it die: its host may have slept or been cut off), worker (the next)
 * landing      commit (empty: it could not), summary
 * pull_request url, number, draft
 * receipt      worker_deaths, turns_redone, replies_paid_twice
 * item         of a backlog: event (the signal a delivery sent, or `begins`), and what it said
 * ended        outcome, reason
 */
export type EventType = "started" | "continued" | "phase" | "step_started" | "activity" | "step_ended" | "step_failed" | "commit" | "test_result" | "review" | "question" | "gate" | "waiting" | "decision" | "said" | "worker_death" | "landing" | "pull_request" | "receipt" | "item" | "ended";

/** The answer to update `attach`: the delivery of this id has been accepted, just now or before. */
export interface DeliveryAttached {
  delivery_id: string;
  run_id: string;
  repository: string;
  /** what it is about, in one line of at most 200 characters */
  request: string;
  /** the number of the issue that says so */
  issue: number | null;
}

/**
 * The answer to query `progress`: what a live view needs, and nothing that grows without bound.
 * `waiting` says in one line what the delivery waits for, when it waits; `asked` what of that a person decides. `held`: why no further turn begins. `plan`, `report` (of the newest tests), `review`: artifacts. Of the limits, with what people added to them, `budget_tokens` is 0 where there is none; `used_s` of `time_s` seconds are used, waiting for people aside.
 */
export interface Progress {
  delivery_id: string;
  run_id: string;
  repository: string;
  status: ProgressStatus;
  phase: string | null;
  reason: string | null;
  message: string;
  base: string | null;
  base_sha: string | null;
  branch: string | null;
  head_sha: string | null;
  checkpoint: string | null;
  queue: string | null;
  budget_usd: number | null;
  test_fixes: number | null;
  review_fixes: number | null;
  steps: StepRecord[];
  usage: Usage;
  spend: Spend;
  pull_request: PullRequest | null;
  waiting: string;
  /** The one thing a delivery waits for. */
  asked: PendingDecision | null;
  unread: number;
  held: string;
  plan: string;
  report: string;
  review: string;
  budget_tokens: number;
  time_s: number | null;
  used_s: number | null;
  decisions: DecisionMade[];
}

/** The one thing a delivery waits for. */
export interface PendingDecision {
  gate: Gate;
  /** names what is decided: the beginning of the plan's or commit's hash, or a number; a decision repeats it, so that it can never decide something else after a rewind */
  of: string;
  /** what is asked, in one line */
  words: string;
  /** when it began to wait */
  since: string;
  /** when it ends by itself, null: never */
  expires?: string | null;
  /** An agent's question. `why`: what depends on the answer. */
  question?: Question | null;
  /** which verdicts are open: the names of the updates to send */
  options?: string[];
  /** which one is reached, at gate budget: usd, tokens or time; that is what add_budget has to raise */
  limit?: string;
}

/** An agent's question. `why`: what depends on the answer. */
export interface Question {
  text: string;
  kind?: QuestionKind;
  choices?: string[];
  why?: string;
}

/**
 * `status` of query `progress`, and search attribute PerdureStatus: those of a delivery that goes on, and each
 * Status (docs/events.md).
 */
export type ProgressStatus = "running" | "waiting" | "delivered" | "draft" | "completed" | "not_delivered" | "no_changes" | "cancelled";

export type QuestionKind = "text" | "choice" | "yes_no";

/**
 * The spending of a delivery so far, over all its runs, as its spend log has it.
 * `usd` is the sum of settled replies; null when a price is not known: `known_usd` is then the sum of the others. `at_risk_usd` is the upper bound of requests that were sent and never settled (a worker died while the reply came in). `tokens` and `at_risk_tokens` are the same in tokens, read and written; 0 where nobody wrote them down.
 */
export interface Spend {
  usd: number | null;
  at_risk_usd: number;
  known_usd: number;
  tokens: number;
  at_risk_tokens: number;
}

/**
 * Tokens of one or more replies, and their price in US dollars; null when a model's price is not known.
 * `cache_write_1h_tokens` are those of `cache_write_tokens` that were written for an hour, which costs more.
 */
export interface Usage {
  input_tokens: number;
  cache_read_tokens: number;
  cache_write_tokens: number;
  cache_write_1h_tokens: number;
  output_tokens: number;
  cost_usd: number | null;
}

/** The answer to query `progress`, and the result of a backlog that has ended. `asks`: why its branch does not follow its base, for a person to decide by update `follow`; `notes`: the newest ten of what a person should know. */
export interface BacklogProgress {
  backlog_id: string;
  run_id: string;
  repository: string;
  status: string;
  base?: string;
  land?: string;
  branch?: string;
  head?: string;
  parallel?: number;
  budget_usd?: number | null;
  /** spent by all of its deliveries; left out: nothing; null: a price is not known */
  usd?: number | null;
  held?: string;
  asks?: string;
  waiting?: string;
  message?: string;
  notes?: string[];
  pull_request?: string;
  turn?: string;
  began?: string | null;
  items?: ItemView[];
}

/** One item as it is shown. `phase`: ready, after (others), building, landing, waits (for you), landed, failed, blocked, skipped or cancelled; `because`: why, in one line; unblocks: how many items wait for it; branch, pull_request: in a stack, its own. */
export interface ItemView {
  id: string;
  phase: string;
  because?: string;
  caption?: string;
  delivery?: string;
  commit?: string;
  branch?: string;
  pull_request?: string;
  unblocks?: number;
  depends_on?: string[];
  blocked_by?: string;
  gate?: string;
  of?: string;
  since?: string | null;
  usd?: number;
  priority?: number;
  critical?: boolean;
}

/** The answer to update `attach`: the backlog of this id has been accepted, just now or before. */
export interface BacklogAttached {
  backlog_id: string;
  run_id: string;
  repository: string;
  items: number;
}

/** The body of a webhook's request: JSON, Content-Type application/json. */
export interface WebhookMessage {
  /** everything for a person, in the markup of Slack's incoming webhooks, which Mattermost understands */
  text: string;
  /** of this shape: fields are added within it, none changes its meaning */
  version: 1;
  /** waiting (for approval: of a plan, of tests or of a pull request; with gate null, for a day's budget), question, budget, reminder (of one of these), ended; test: whether this arrives, no delivery is meant */
  event: NoticeEvent;
  /** the same when it is sent again: keep it to tell twice-sent from new; header webhook-id says it, too */
  id: string;
  /** when it happened, RFC 3339 */
  at: string;
  /** the Temporal workflow's */
  delivery_id: string;
  /** the Temporal workflow's */
  run_id: string;
  repository: string;
  /** what the delivery is about, in one line */
  request: string;
  /** where it is */
  phase: string | null;
  /** what happened, in one line */
  words: string;
  /** what is decided: plan, pull_request, budget or question, and its name; null with ended */
  gate: Gate | null;
  /** what is decided: plan, pull_request, budget or question, and its name; null with ended */
  of: string | null;
  /** what an agent asked, its kind, choices, and why it matters */
  question: Question | null;
  /** when it began to wait, and when it ends without a decision; null: never */
  since: string | null;
  /** when it began to wait, and when it ends without a decision; null: never */
  expires: string | null;
  /** the ways to decide */
  decisions: DecisionOption[];
  links: Links;
  /** spent so far, in dollars; null: not known */
  cost_usd: number | null;
  /** with ended: the DeliveryResult, or of a backlog the BacklogProgress, which has a backlog_id; steps and items are left out where they are long */
  result: Record<string, unknown> | null;
}

/** A way to decide: the update to send with its JSON, from any Temporal client or the Web UI, or the command. */
export interface DecisionOption {
  update: string;
  said: Record<string, unknown>;
  command: string;
}

/** Pages in a browser; null where there is none or it is not known. */
export interface Links {
  web_ui: string | null;
  pull_request: string | null;
}

export type NoticeEvent = "waiting" | "question" | "budget" | "reminder" | "ended" | "test";

/** The answer of the plan step: fixed sections, kept as an artifact and shown in the pull request. */
export interface Plan {
  /** imperative, at most 60 characters, no prefix; becomes commit and pull request title */
  title: string;
  problem: string;
  solution: string;
  relevant_files: string[];
  tasks: Task[];
  /** how a person can check the result, one item each */
  validation: string[];
}

export interface Task {
  title: string;
  details: string;
  /** paths that will probably change */
  files: string[];
  /** who it is for; null where everybody could do it as well */
  role?: Role | null;
  /** numbers of the tasks, from 1, that must be done before it */
  depends_on?: number[];
}

/** who it is for; null where everybody could do it as well */
export type Role = "backend" | "frontend" | "test";

/** The results of all test commands on one tree, those first that decide against it. */
export interface TestReport {
  commit: string;
  tree: string;
  /** the branch it was compared with; empty when its tests are not known */
  base: string;
  /** one line for whoever reads the report: what is new and what is not */
  note: string;
  /** names of tests, and of commands without a report, that failed on the base and passed now */
  fixed: string[];
  /** where the change makes the tests say less than on the base: each makes the verdict red, unless `allowed` */
  tampering: TamperingHit[];
  /** the request itself is about tests (allow_test_changes) */
  allowed: boolean;
  commands: CommandResult[];
  /** the change tried beside its own green tests; null: they were not green, or there is no base */
  experiment: Experiment | null;
}

/** the change tried beside its own green tests; null: they were not green, or there is no base */
export interface Experiment {
  base: string;
  change: string;
  /** the name of the base, for people */
  branch: string;
  /** paths of the test side that differ */
  touched: string[];
  /** the request itself is about tests: tests of the base may be taken away */
  allowed: boolean;
  /** the request asks for something to be removed: tests of the base that went with it are changed promises, for the reviewer to justify with its words */
  removes: boolean;
  /** why nothing was tried at all; empty: it was */
  skipped: string;
  commands: CommandExperiment[];
}

/** Of canaries, tests that always fail: each was reported red; one was not; nobody could be asked. */
export type CanaryOutcome = "caught" | "missed" | "not_asked";

/** One test command in all experiments. */
export interface CommandExperiment {
  name: string;
  command: string;
  /** tests that were green on the base, and of these green on the change (PASS_TO_PASS); null: not asked, the change leaves the test side alone, or the runner knows only exit codes */
  base_tests: number | null;
  /** tests that were green on the base, and of these green on the change (PASS_TO_PASS); null: not asked, the change leaves the test side alone, or the runner knows only exit codes */
  base_passed: number | null;
  /** tests of the base that fail on the change, and passed there as the change has them */
  promises: Promise[];
  /** tests of the base that fail on the change, and are gone from it or skipped in it */
  taken: string[];
  /** tests of the base that would pass on the change, and are gone from it or skipped in it */
  lost: string[];
  /** tests of the base that fail on the change, in versions that the change has not made green either: they were while somebody could write to the test side */
  contradicted: string[];
  /** see CanaryOutcome */
  canaries: CanaryOutcome;
  /** those that were not reported red, though on the base they were */
  missed: string[];
  /** what canaries saw replaced in library modules, such as `json.dumps`, or in the process; not on the base */
  replaced: string[];
  /** tests that were green on the base and are not in `base_tests` */
  not_asked: UnaskedTests[];
  /** tests that are new or changed, pass on the change, and fail without its product files (FAIL_TO_PASS); null: not asked */
  proving: string[] | null;
  /** how many more there are than are named */
  proving_unnamed: number;
  /** tests that are new or changed and pass on the change, and whose file does not load or build without its product files: a weaker proof, it is one of what they name alone */
  unbuilt: string[];
  /** how many more there are than are named */
  unbuilt_unnamed: number;
  /** tests that are new or changed, and pass with the bodies of all new functions taken out */
  hollow: string[];
  /** files of the test side that this command wrote on the change and not on the base */
  written: string[];
  /** shared settings of the change without which the base's tests do not even start on it */
  steered: string[];
  /** for people: what could not be asked, and why */
  unasked: string[];
  /** as in CommandResult */
  killed_runs: number;
}

/** One test command. */
export interface CommandResult {
  name: string;
  command: string;
  directory: string;
  required: boolean;
  /** passed, failed, timed_out, not_started, contradicted (report against exit code) */
  verdict: string;
  /** new: something in it did not fail on the base; known: it failed there in the same tests and ended so; undecidable: red there and here, and no report says in what. null: it passed, or no base is known */
  since: BaseComparison | null;
  /** it failed as a whole, and passed when it was run once more */
  flaky: boolean;
  /** runs that a signal ended which somebody had sent, and that were done again: they show nothing */
  killed_runs: number;
  /** it stops at its first failure, or has another part that runs only when the tests pass */
  partial: boolean;
  exit_code: number | null;
  duration_s: number;
  tail: string;
  reason: string;
  /** failed first, of these the new ones before the known ones */
  cases: TestCase[];
}

/** new: something in it did not fail on the base; known: it failed there in the same tests and ended so; undecidable: red there and here, and no report says in what. null: it passed, or no base is known */
export type BaseComparison = "new" | "known" | "undecidable";

/** A test of the base that fails on the change, where a test of its name passes with the change's own tests. */
export interface Promise {
  name: string;
  file: string;
  message: string;
  /** the test on the base and on the change, cut; equal ones: only what it uses has changed */
  before: string;
  /** the test on the base and on the change, cut; equal ones: only what it uses has changed */
  after: string;
  /** `under …`: what it fails under, where it passes on the change otherwise; empty: it fails in any run */
  condition: string;
}

/** A way in which a change can make tests say less than they did. */
export type Tampering = "gone" | "skipped" | "hollow" | "configuration" | "command" | "report";

/** One place where the change makes the tests say less (docs/testing.md, perdure.adapters.checks.tamper), or may. */
export interface TamperingHit {
  /** gone, without a twin; skipped, or expected to fail; hollow: it checks nothing any more. Of hints alone: configuration: what is collected, or how; command: it may hide failures; report: product that looks at it */
  rule: Tampering;
  /** one line for people */
  title: string;
  file: string;
  line: number | null;
  /** a few lines: what it was and what it is */
  evidence: string;
}

/** One test as its runner reported it (docs/testing.md). */
export interface TestCase {
  name: string;
  file: string;
  /** passed, failed, errored or skipped */
  outcome: string;
  /** trimmed; of a flaky test, how it failed the first time */
  message: string;
  duration_s: number;
  /** reproduces it alone, in the worktree; empty where its runner cannot */
  command: string;
  /** it failed on the base commit too */
  known: boolean;
  /** it failed, and passed when it was run once more, alone */
  flaky: boolean;
  /** it is no test, but a program of tests (a file, a Go package) that was not built or did not run to its end; the tests that it has not reached are not among the cases */
  is_program: boolean;
}

/** Tests that were green on the base and that no run asked about the change. `reason`: in a few words. */
export interface UnaskedTests {
  number: number;
  reason: string;
}

/** The answer of the review step. Only blockers block. */
export interface Review {
  summary: string;
  issues: ReviewIssue[];
  /** one for each changed promise that was shown */
  promises?: Justification[];
}

/** The reviewer's answer about one changed promise: a test of the base that fails on the change. */
export interface Justification {
  /** the name of the test, as it was given */
  test: string;
  /** words of the request, exactly as they stand there, that ask for it; empty if none */
  quote: string;
  /** one sentence */
  reason: string;
}

export interface ReviewIssue {
  title: string;
  description: string;
  severity: Severity;
  /** path in the diff, or empty */
  file: string;
  /** line in the new file, or null */
  line: number | null;
  suggestion: string;
  /** pages whose screenshots show it, by their address; empty if none */
  screenshots?: string[];
}

export type Severity = "blocker" | "tech_debt" | "skippable";

/** Deterministic findings about the change from `base` to `head` (commits), the worst first. */
export interface Findings {
  base: string;
  head: string;
  findings: Finding[];
  /** tests of the base that check something else now: shown to the reviewer */
  changed_tests: ChangedTest[];
  /** the size of the change: files and lines */
  files: number;
  /** the size of the change: files and lines */
  added: number;
  /** the size of the change: files and lines */
  deleted: number;
}

/** A test of the base that is still there and checks something else now: for the reviewer, never a verdict. */
export interface ChangedTest {
  name: string;
  file: string;
  line: number | null;
  before: string;
  after: string;
}

/** A finding of the engine itself in a change, beside the reviewer's. Never holds the secret it is about. */
export interface Finding {
  rule: FindingRule;
  severity: Severity;
  title: string;
  description: string;
  file: string;
  line: number | null;
  suggestion: string;
}

/** A thing the engine itself looks for in a change. */
export type FindingRule = "secret" | "protected_path" | "conflict" | "binary" | "symlink" | "size" | "tampering" | "unproven" | "lost_test" | "filter" | "leftover";
