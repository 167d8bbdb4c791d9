// Made by `make schema`: do not edit.
package perdure;

import com.fasterxml.jackson.annotation.JsonIgnoreProperties;
import com.fasterxml.jackson.annotation.JsonInclude;
import com.fasterxml.jackson.annotation.JsonProperty;
import java.util.List;
import java.util.Map;

/** What a delivery takes and gives, as in docs/schema. A field that is null is left out where it may be. */
public final class Types {
    private Types() {}

    /** One request that shall become one pull request. Only `repository` and `request` (or `issue`) are required; null counts as left out. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    @JsonInclude(JsonInclude.Include.NON_NULL)
    public static class DeliveryRequest {
        /** path, file://, https://, ssh:// or scp-like address of the target, at most 2,048 bytes */
        @JsonProperty("repository")
        public String repository;

        /** what is wanted, in words; at most 64 KiB; may be left out when an issue says it all, and where an existing branch is only tested, published, or reviewed against a plan */
        @JsonProperty("request")
        public String request;

        /** branch to start from and to merge into; default: the target's default branch */
        @JsonProperty("base")
        public String base;

        /** which of plan, build, test, review, ship; default: the repository's setting, else all */
        @JsonProperty("phases")
        public List<Phase> phases;

        /** before which of plan, pull_request a person decides; beside those of the repository's settings. Phase plan, or phase ship or `push`, has to be selected */
        @JsonProperty("gates")
        public List<RequestGate> gates;

        /** may lower the configured budget, and raise it up to the host's limit */
        @JsonProperty("budget_usd")
        public Double budgetUsd;

        /** the same for tokens, read and written together; there is no limit unless one is configured */
        @JsonProperty("tokens")
        public Long tokens;

        /** false: nobody is asked. Agents decide, and list in the pull request what they assumed; tests that cannot be told from those that failed on the base make a draft */
        @JsonProperty("questions")
        public Boolean questions;

        /** put on the pull request, beside those of the settings; a budget may be shared by label. Together at most 1,800 bytes, as JSON in ASCII */
        @JsonProperty("labels")
        public List<String> labels;

        /** an open issue of the repository that says what is wanted: "12", "#12" or its address; a number is taken, too */
        @JsonProperty("issue")
        public String issue;

        /** an existing branch to work on instead of starting from the base */
        @JsonProperty("branch")
        public String branch;

        /** a plan in Markdown, used instead of making one */
        @JsonProperty("plan")
        public String plan;

        /** the request itself is about tests */
        @JsonProperty("allow_test_changes")
        public Boolean allowTestChanges;

        /** true, null: red tests and blockers are mended; false: they are only reported */
        @JsonProperty("fix")
        public Boolean fix;

        /** push the branch's new commits although no pull request is asked for */
        @JsonProperty("push")
        public Boolean push;

        /** of this shape: 1 */
        @JsonProperty("spec_version")
        public Long specVersion;

        /** one model for every step, overriding configuration */
        @JsonProperty("model")
        public String model;

        /** one agent for every step, likewise: "built-in", or a preset that its host has */
        @JsonProperty("agent")
        public String agent;

        /** at the plan, 1 to 5: each is built and judged by itself, and the best one is taken */
        @JsonProperty("attempts")
        public Long attempts;

        /** the other attempts begin only when the first one is no good */
        @JsonProperty("after_red")
        public Boolean afterRed;

        /** text of a perdure.toml to use instead of the base branch's */
        @JsonProperty("config")
        public String config;

        /** the submitter's checkout, for `[setup] copy`; counts with `proof` only */
        @JsonProperty("source")
        public String source;

        /** set by the command line and by clients that have this home's key (docs/submitting.md): without it no path of the worker's host counts, but for repositories its owner's settings allow */
        @JsonProperty("proof")
        public String proof;

        /** task queue of the host whose path `repository` or `source` is: it is prepared there. Set with `proof`; left out: any host prepares it */
        @JsonProperty("host")
        public String host;

        /** set by a backlog: its change lands there, instead of a pull request */
        @JsonProperty("landing")
        public LandingPlace landing;

        /** set by `perdure retry`: go on where another run ended */
        @JsonProperty("resume")
        public ResumePoint resume;

        /** set by `perdure fork`: the turn of another delivery before which this one begins */
        @JsonProperty("forked")
        public ForkedFrom forked;
    }

    /** set by a backlog: its change lands there, instead of a pull request */
    @JsonIgnoreProperties(ignoreUnknown = true)
    @JsonInclude(JsonInclude.Include.NON_NULL)
    public static class LandingPlace {
        /** its workflow id */
        @JsonProperty("backlog")
        public String backlog;

        @JsonProperty("item")
        public String item;

        /** the integration branch, into which it goes where the branch it began from is gone by then */
        @JsonProperty("branch")
        public String branch;

        /** the item's, its agents are told */
        @JsonProperty("role")
        public String role;

        /** it lands nothing, but says which items it consists of (BacklogItem) */
        @JsonProperty("decompose")
        public DecomposeMode decompose;

        /** it is a task of that delivery, and lands in its vault */
        @JsonProperty("within")
        public ParentDelivery within;

        /** it is one of a stack, and opens a pull request of its own */
        @JsonProperty("ships")
        public Boolean ships;
    }

    /** it lands nothing, but says which items it consists of (BacklogItem) */
    public enum DecomposeMode {
        @JsonProperty("ask") ASK,
        @JsonProperty("go") GO,
    }

    /** it is a task of that delivery, and lands in its vault */
    @JsonIgnoreProperties(ignoreUnknown = true)
    @JsonInclude(JsonInclude.Include.NON_NULL)
    public static class ParentDelivery {
        /** its key */
        @JsonProperty("delivery")
        public String delivery;

        /** artifact of its Contract, whose copy the task runs under */
        @JsonProperty("terms")
        public String terms;

        /** artifact of the whole plan */
        @JsonProperty("plan")
        public String plan;

        /** its number there, from 1 */
        @JsonProperty("task")
        public Long task;

        /** its title */
        @JsonProperty("title")
        public String title;

        /** of the request, for the commit */
        @JsonProperty("kind")
        public String kind;

        /** of the host that has its vault */
        @JsonProperty("queue")
        public String queue;

        /** the most the task may use; 0: no limit */
        @JsonProperty("tokens")
        public Long tokens;
    }

    /** set by `perdure retry`: go on where another run ended */
    @JsonIgnoreProperties(ignoreUnknown = true)
    @JsonInclude(JsonInclude.Include.NON_NULL)
    public static class ResumePoint {
        @JsonProperty("run_id")
        public String runId;

        /** in the shape of `DeliveryState` */
        @JsonProperty("state")
        public Map<String, Object> state;

        /** the same delivery goes on in a new run because its history grew long; nothing is prepared anew and no count begins again */
        @JsonProperty("continued")
        public Boolean continued;

        /** the turn that it went back to, where it did */
        @JsonProperty("rewound")
        public String rewound;

        /** the words and the model with which */
        @JsonProperty("asked")
        public Map<String, String> asked;
    }

    /** set by `perdure fork`: the turn of another delivery before which this one begins */
    @JsonIgnoreProperties(ignoreUnknown = true)
    @JsonInclude(JsonInclude.Include.NON_NULL)
    public static class ForkedFrom {
        /** the other one's workflow id */
        @JsonProperty("delivery")
        public String delivery;

        /** its turn, `implement:4` */
        @JsonProperty("at")
        public String at;

        /** what that turn began with */
        @JsonProperty("checkpoint")
        public String checkpoint;

        /** of the host that has it */
        @JsonProperty("queue")
        public String queue;

        /** the newest commit by then, empty: there was none */
        @JsonProperty("head")
        public String head;

        /** its number among several at one plan, which that delivery begins itself and chooses from; 0: it is none */
        @JsonProperty("attempt")
        public Long attempt;

        /** taken and paid for by the other delivery before: its cost, never the sibling's; null: not known */
        @JsonProperty("turns")
        public Long turns;

        /** taken and paid for by the other delivery before: its cost, never the sibling's; null: not known */
        @JsonProperty("usd")
        public Double usd;
    }

    /**
     * A part of a delivery that a user can select, skip or run alone; `land` comes in the place of `ship` where it is
     * part of a backlog, and is never selected.
     */
    public enum Phase {
        @JsonProperty("plan") PLAN,
        @JsonProperty("build") BUILD,
        @JsonProperty("test") TEST,
        @JsonProperty("review") REVIEW,
        @JsonProperty("ship") SHIP,
        @JsonProperty("land") LAND,
    }

    public enum RequestGate {
        @JsonProperty("plan") PLAN,
        @JsonProperty("pull_request") PULL_REQUEST,
    }

    /** Let it go on as it is. `note` is kept with the decision. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    @JsonInclude(JsonInclude.Include.NON_NULL)
    public static class Approve {
        /** what it decides, as the delivery named it; left out: whatever it waits for when the decision arrives */
        @JsonProperty("of")
        public String of;

        /** likewise, by its kind */
        @JsonProperty("gate")
        public Gate gate;

        /** who decides, for the record */
        @JsonProperty("by")
        public String by;

        @JsonProperty("note")
        public String note;
    }

    /** likewise, by its kind */
    public enum Gate {
        @JsonProperty("plan") PLAN,
        @JsonProperty("items") ITEMS,
        @JsonProperty("tests") TESTS,
        @JsonProperty("pull_request") PULL_REQUEST,
        @JsonProperty("budget") BUDGET,
        @JsonProperty("question") QUESTION,
        @JsonProperty("deaths") DEATHS,
        @JsonProperty("landing") LANDING,
    }

    /** `note` says why: it is what planning or fixing goes back with. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    @JsonInclude(JsonInclude.Include.NON_NULL)
    public static class Reject {
        /** what it decides, as the delivery named it; left out: whatever it waits for when the decision arrives */
        @JsonProperty("of")
        public String of;

        /** likewise, by its kind */
        @JsonProperty("gate")
        public Gate gate;

        /** who decides, for the record */
        @JsonProperty("by")
        public String by;

        @JsonProperty("note")
        public String note;
    }

    /** `plan`: SHA-256 of the edited plan, an artifact of the delivery that `perdure approve --edit` has stored. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    @JsonInclude(JsonInclude.Include.NON_NULL)
    public static class EditPlan {
        /** what it decides, as the delivery named it; left out: whatever it waits for when the decision arrives */
        @JsonProperty("of")
        public String of;

        /** likewise, by its kind */
        @JsonProperty("gate")
        public Gate gate;

        /** who decides, for the record */
        @JsonProperty("by")
        public String by;

        @JsonProperty("plan")
        public String plan;

        @JsonProperty("title")
        public String title;
    }

    /** The answer to an agent's question: its next turn reads it. One of the choices where there are some, yes or no. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    @JsonInclude(JsonInclude.Include.NON_NULL)
    public static class Answer {
        /** what it decides, as the delivery named it; left out: whatever it waits for when the decision arrives */
        @JsonProperty("of")
        public String of;

        /** likewise, by its kind */
        @JsonProperty("gate")
        public Gate gate;

        /** who decides, for the record */
        @JsonProperty("by")
        public String by;

        @JsonProperty("answer")
        public String answer;
    }

    /** More to spend, at any time: dollars (0.01 at least), tokens, wall time. The same `id` twice is counted once. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    @JsonInclude(JsonInclude.Include.NON_NULL)
    public static class AddBudget {
        /** what it decides, as the delivery named it; left out: whatever it waits for when the decision arrives */
        @JsonProperty("of")
        public String of;

        /** likewise, by its kind */
        @JsonProperty("gate")
        public Gate gate;

        /** who decides, for the record */
        @JsonProperty("by")
        public String by;

        @JsonProperty("id")
        public String id;

        @JsonProperty("usd")
        public Double usd;

        @JsonProperty("tokens")
        public Long tokens;

        @JsonProperty("time")
        public String time;
    }

    /** Words for the next turn. The same `id` twice is heard once; without one every signal counts. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    @JsonInclude(JsonInclude.Include.NON_NULL)
    public static class Say {
        @JsonProperty("text")
        public String text;

        @JsonProperty("id")
        public String id;
    }

    /** Begin no further turn. `note`: why, for those who wonder; `by`: who says so. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    @JsonInclude(JsonInclude.Include.NON_NULL)
    public static class Hold {
        @JsonProperty("note")
        public String note;

        @JsonProperty("by")
        public String by;
    }

    /** Go on after a hold. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    public static class Resume {
    }

    /** A reset to an earlier turn follows: the run of that id begins no further turn meanwhile. The run that the reset makes forgets what was said and held before, and hears `text`. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    @JsonInclude(JsonInclude.Include.NON_NULL)
    public static class Rewind {
        @JsonProperty("from_run")
        public String fromRun;

        /** the turn, for people */
        @JsonProperty("to")
        public String to;

        @JsonProperty("text")
        public String text;

        @JsonProperty("id")
        public String id;

        /** when it began the first time, the time from then on is not the delivery's */
        @JsonProperty("since")
        public String since;

        /** the terms from there on, made by the delivery's host, where model or agent are others */
        @JsonProperty("policy")
        public String policy;

        /** by step */
        @JsonProperty("models")
        public Map<String, String> models;

        /** those of them whose price nobody knows */
        @JsonProperty("unpriced")
        public List<String> unpriced;

        /** as they were asked for, so that the same rewind is known again */
        @JsonProperty("model")
        public String model;

        /** as they were asked for, so that the same rewind is known again */
        @JsonProperty("agent")
        public String agent;
    }

    /** A decision sent as a signal because no worker took the update: `update` names it; `of`, or for `add_budget` an `id`, must be in `said`, so that it counts once however often and by whatever way it comes. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    public static class Decide {
        @JsonProperty("update")
        public DecisionUpdate update;

        @JsonProperty("said")
        public Map<String, Object> said;
    }

    public enum DecisionUpdate {
        @JsonProperty("approve") APPROVE,
        @JsonProperty("reject") REJECT,
        @JsonProperty("edit_plan") EDIT_PLAN,
        @JsonProperty("answer") ANSWER,
        @JsonProperty("add_budget") ADD_BUDGET,
    }

    /** Many requests that shall land on one integration branch. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    @JsonInclude(JsonInclude.Include.NON_NULL)
    public static class BacklogRequest {
        /** as for a delivery */
        @JsonProperty("repository")
        public String repository;

        @JsonProperty("items")
        public List<BacklogItem> items;

        /** open issues that are items, too, as of when it begins: label:bug, milestone:1.0 or search:"…" */
        @JsonProperty("issues")
        public String issues;

        /** the branch it begins from and its pull request goes into; default: the target's default branch */
        @JsonProperty("base")
        public String base;

        /** the integration branch; default: `perdure/<backlog id>` */
        @JsonProperty("branch")
        public String branch;

        /** branch: one integration branch, one pull request at the end; stack: a pull request for each item, into the branch of the one it depends on */
        @JsonProperty("land")
        public LandingMode land;

        /** deliveries at once */
        @JsonProperty("parallel")
        public Long parallel;

        /** the most all of them may spend together; left out: each has its own budget only */
        @JsonProperty("budget_usd")
        public Double budgetUsd;

        /** hours in which deliveries may begin: "23:00-07:00" in UTC, "23:00-07:00 +02:00", "23:00-07:00 Europe/Berlin"; left out: always */
        @JsonProperty("window")
        public String window;

        /** wait: items whose `touches` meet are built one after the other; build: at the same time */
        @JsonProperty("overlap")
        public OverlapRule overlap;

        /** as in a delivery's request, for each item that says nothing else */
        @JsonProperty("attempts")
        public Long attempts;

        /** as in a delivery's request, for each item that says nothing else */
        @JsonProperty("after_red")
        public Boolean afterRed;

        /** as in a delivery's request, for each of them */
        @JsonProperty("gates")
        public List<RequestGate> gates;

        /** as in a delivery's request, for each of them */
        @JsonProperty("questions")
        public Boolean questions;

        /** as in a delivery's request, for each of them */
        @JsonProperty("labels")
        public List<String> labels;

        /** as in a delivery's request, for each of them */
        @JsonProperty("model")
        public String model;

        /** as in a delivery's request, for each of them */
        @JsonProperty("agent")
        public String agent;

        /** as in a delivery's request, for each of them */
        @JsonProperty("config")
        public String config;

        /** as in a delivery's request, for each of them */
        @JsonProperty("source")
        public String source;

        /** as in a delivery's request, for each of them */
        @JsonProperty("proof")
        public String proof;

        /** as in a delivery's request, for each of them */
        @JsonProperty("host")
        public String host;

        @JsonProperty("version")
        public Long version;
    }

    /** One item: it becomes one delivery, and one commit of the integration branch. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    @JsonInclude(JsonInclude.Include.NON_NULL)
    public static class BacklogItem {
        /** names it: lower case letters, digits and dashes; left out with an issue: `issue-14` */
        @JsonProperty("id")
        public String id;

        /** what is wanted, in words; may be left out where an issue says it all */
        @JsonProperty("request")
        public String request;

        /** an open issue of the repository: "14", "#14" or its address; a number is taken, too */
        @JsonProperty("issue")
        public String issue;

        /** higher goes first among those that are ready; -100 to 100 */
        @JsonProperty("priority")
        public Long priority;

        /** put on its delivery, and counted with those of the backlog */
        @JsonProperty("labels")
        public List<String> labels;

        /** its agents are told so: frontend, test, …; with the repository's `.perdure/prompts/role-<role>.md`, where there is one; empty: nobody's in particular */
        @JsonProperty("role")
        public String role;

        /** ids of items that have to land before it begins */
        @JsonProperty("depends_on")
        public List<String> dependsOn;

        /** files it is expected to change, as in .gitignore: src/api/**, *.md; items whose patterns meet are not built at the same time */
        @JsonProperty("touches")
        public List<String> touches;

        /** commands that hold once it has landed, and in every landing after it */
        @JsonProperty("check")
        public List<String> check;

        /** the most its delivery may spend; left out: an equal share of what the backlog has left */
        @JsonProperty("budget_usd")
        public Double budgetUsd;

        /** as in a delivery's request; left out: as the backlog's */
        @JsonProperty("attempts")
        public Long attempts;

        /** as in a delivery's request; left out: as the backlog's */
        @JsonProperty("after_red")
        public Boolean afterRed;

        /** it is too large for one delivery: a planning step makes items of it, which take its place. ask: a person approves or edits them first (gate `items`); go: they begin at once */
        @JsonProperty("decompose")
        public DecomposeMode decompose;
    }

    public enum LandingMode {
        @JsonProperty("branch") BRANCH,
        @JsonProperty("stack") STACK,
    }

    public enum OverlapRule {
        @JsonProperty("wait") WAIT,
        @JsonProperty("build") BUILD,
    }

    /** Updates `add` and `edit`: the whole item. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    public static class AddItem {
        @JsonProperty("item")
        public BacklogItem item;
    }

    /** Updates `skip`, `retry` and `cancel_item`. `item`: its id; `by`: who says so. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    @JsonInclude(JsonInclude.Include.NON_NULL)
    public static class NamedItem {
        @JsonProperty("item")
        public String item;

        @JsonProperty("note")
        public String note;

        @JsonProperty("by")
        public String by;
    }

    /** Update `prioritise`. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    @JsonInclude(JsonInclude.Include.NON_NULL)
    public static class PrioritisedItem {
        @JsonProperty("item")
        public String item;

        @JsonProperty("note")
        public String note;

        @JsonProperty("by")
        public String by;

        @JsonProperty("priority")
        public Long priority;
    }

    /** Update `approve` of a backlog. `item`: the item that waits; the rest as the delivery's own update takes it. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    @JsonInclude(JsonInclude.Include.NON_NULL)
    public static class ApproveItem {
        /** what it decides, as the delivery named it; left out: whatever it waits for when the decision arrives */
        @JsonProperty("of")
        public String of;

        /** likewise, by its kind */
        @JsonProperty("gate")
        public Gate gate;

        /** who decides, for the record */
        @JsonProperty("by")
        public String by;

        @JsonProperty("note")
        public String note;

        @JsonProperty("item")
        public String item;
    }

    /** Update `reject` of a backlog. `item`: the item that waits; the rest as the delivery's own update takes it. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    @JsonInclude(JsonInclude.Include.NON_NULL)
    public static class RejectItem {
        /** what it decides, as the delivery named it; left out: whatever it waits for when the decision arrives */
        @JsonProperty("of")
        public String of;

        /** likewise, by its kind */
        @JsonProperty("gate")
        public Gate gate;

        /** who decides, for the record */
        @JsonProperty("by")
        public String by;

        @JsonProperty("note")
        public String note;

        @JsonProperty("item")
        public String item;
    }

    /** Update `edit_plan` of a backlog. `item`: the item that waits; the rest as the delivery's own update takes it. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    @JsonInclude(JsonInclude.Include.NON_NULL)
    public static class EditPlanOfItem {
        /** what it decides, as the delivery named it; left out: whatever it waits for when the decision arrives */
        @JsonProperty("of")
        public String of;

        /** likewise, by its kind */
        @JsonProperty("gate")
        public Gate gate;

        /** who decides, for the record */
        @JsonProperty("by")
        public String by;

        @JsonProperty("plan")
        public String plan;

        @JsonProperty("title")
        public String title;

        @JsonProperty("item")
        public String item;
    }

    /** Update `answer` of a backlog. `item`: the item that waits; the rest as the delivery's own update takes it. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    @JsonInclude(JsonInclude.Include.NON_NULL)
    public static class AnswerItem {
        /** what it decides, as the delivery named it; left out: whatever it waits for when the decision arrives */
        @JsonProperty("of")
        public String of;

        /** likewise, by its kind */
        @JsonProperty("gate")
        public Gate gate;

        /** who decides, for the record */
        @JsonProperty("by")
        public String by;

        @JsonProperty("answer")
        public String answer;

        @JsonProperty("item")
        public String item;
    }

    /** Update `add_budget` of a backlog. `item`: one that runs; the rest as the delivery's own update takes it. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    @JsonInclude(JsonInclude.Include.NON_NULL)
    public static class AddBudgetToItem {
        /** what it decides, as the delivery named it; left out: whatever it waits for when the decision arrives */
        @JsonProperty("of")
        public String of;

        /** likewise, by its kind */
        @JsonProperty("gate")
        public Gate gate;

        /** who decides, for the record */
        @JsonProperty("by")
        public String by;

        @JsonProperty("id")
        public String id;

        @JsonProperty("usd")
        public Double usd;

        @JsonProperty("tokens")
        public Long tokens;

        @JsonProperty("time")
        public String time;

        @JsonProperty("item")
        public String item;
    }

    /** Update `follow`: look at the base again, now; or `leave` the branch where it stands. `by`: who says so. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    @JsonInclude(JsonInclude.Include.NON_NULL)
    public static class Follow {
        @JsonProperty("leave")
        public Boolean leave;

        @JsonProperty("note")
        public String note;

        @JsonProperty("by")
        public String by;
    }

    /** The end of a delivery, and what exists now. `plan`: its address, in the submitter's words or as it was made; `unread`: what people said and no turn has read, each cut to 200 characters, a retry's first turn reads it; `decisions`: the newest 20 of what people decided, in their order; `landed`: its commit on a backlog's branch; `items`: what a request consists of that was decomposed for a backlog; `attempts`: at the plan, where it had several. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    public static class DeliveryResult {
        @JsonProperty("delivery_id")
        public String deliveryId;

        @JsonProperty("run_id")
        public String runId;

        @JsonProperty("spec_version")
        public Long specVersion;

        @JsonProperty("status")
        public Status status;

        /** The reason a delivery is `not_delivered`. */
        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("reason")
        public Reason reason;

        @JsonProperty("message")
        public String message;

        @JsonProperty("repository")
        public String repository;

        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("base")
        public String base;

        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("base_sha")
        public String baseSha;

        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("branch")
        public String branch;

        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("head_sha")
        public String headSha;

        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("checkpoint")
        public String checkpoint;

        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("pull_request")
        public PullRequest pullRequest;

        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("landed")
        public String landed;

        @JsonProperty("items")
        public List<BacklogItem> items;

        @JsonProperty("attempts")
        public List<AttemptResult> attempts;

        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("plan")
        public String plan;

        @JsonProperty("tests")
        public TestsResult tests;

        @JsonProperty("review")
        public ReviewResult review;

        @JsonProperty("steps")
        public List<StepRecord> steps;

        @JsonProperty("usage")
        public UsageResult usage;

        @JsonProperty("receipt")
        public Receipt receipt;

        @JsonProperty("next")
        public List<String> next;

        @JsonProperty("unread")
        public List<String> unread;

        @JsonProperty("decisions")
        public List<DecisionMade> decisions;
    }

    /** The reason a delivery is `not_delivered`. */
    public enum Reason {
        @JsonProperty("tests_red") TESTS_RED,
        @JsonProperty("blockers") BLOCKERS,
        @JsonProperty("tampered") TAMPERED,
        @JsonProperty("budget") BUDGET,
        @JsonProperty("refused") REFUSED,
        @JsonProperty("limits") LIMITS,
        @JsonProperty("plan_rejected") PLAN_REJECTED,
        @JsonProperty("workspace_lost") WORKSPACE_LOST,
        @JsonProperty("setup_failed") SETUP_FAILED,
        @JsonProperty("forge_refused") FORGE_REFUSED,
        @JsonProperty("invalid_request") INVALID_REQUEST,
    }

    @JsonIgnoreProperties(ignoreUnknown = true)
    public static class PullRequest {
        @JsonProperty("number")
        public Long number;

        @JsonProperty("url")
        public String url;

        @JsonProperty("title")
        public String title;

        @JsonProperty("draft")
        public Boolean draft;
    }

    /** The end of one attempt, the same whatever its worker survived on the way. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    public static class AttemptResult {
        /** from 1 */
        @JsonProperty("number")
        public Long number;

        /** its workflow id, the delivery's own where it was that one's */
        @JsonProperty("delivery")
        public String delivery;

        /** where its commits stay */
        @JsonProperty("branch")
        public String branch;

        /** the newest of them, empty where it has none */
        @JsonProperty("head")
        public String head;

        /** how it ended, in one line; empty: well */
        @JsonProperty("words")
        public String words;

        /** the verdict on exactly `head` */
        @JsonProperty("tests")
        public TestsStatus tests;

        /** of exactly `head`, the engine's own findings in it */
        @JsonProperty("review")
        public ReviewResult review;

        /** added and removed from base to head: the change that was reviewed */
        @JsonProperty("lines")
        public Long lines;

        /** of its own replies, not of the plan before it; null: a price is not known */
        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("cost_usd")
        public Double costUsd;

        /** the delivery went on with this one */
        @JsonProperty("chosen")
        public Boolean chosen;
    }

    /** The decision of a person: `of` names a plan, a commit, a question or a limit, by `gate`; `note` is cut. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    public static class DecisionMade {
        @JsonProperty("gate")
        public String gate;

        @JsonProperty("of")
        public String of;

        @JsonProperty("verdict")
        public String verdict;

        @JsonProperty("by")
        public String by;

        @JsonProperty("note")
        public String note;
    }

    /** The record of what the delivery survived. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    public static class Receipt {
        /** workers that died while they worked on this delivery */
        @JsonProperty("worker_deaths")
        public Long workerDeaths;

        /** turns that were cut off and done again from their checkpoint */
        @JsonProperty("turns_redone")
        public Long turnsRedone;

        /** replies that were received whole, written down, and asked for again (0 by design) */
        @JsonProperty("replies_paid_twice")
        public Long repliesPaidTwice;

        /** requests cut off (by a death, a cancellation, the line) before the reply was whole: possibly billed, never counted as free */
        @JsonProperty("replies_cut")
        public Long repliesCut;

        /** what was shown of the tree that was tested: the base's own tests on it, its tests without the change, canaries; empty: not tried */
        @JsonProperty("experiment")
        public String experiment;

        /** the delivery and its turn that it began before, `night at implement:4`; empty: it is no fork */
        @JsonProperty("forked_from")
        public String forkedFrom;

        /** of that delivery, until then: it has paid, this is no part of this one's cost; null: not known */
        @JsonProperty("inherited_turns")
        public Long inheritedTurns;

        /** of that delivery, until then: it has paid, this is no part of this one's cost; null: not known */
        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("inherited_usd")
        public Double inheritedUsd;
    }

    /** Counts of what the reviewer and the engine found. `findings`: the engine's own, `report`: the reviewer's. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    public static class ReviewResult {
        @JsonProperty("status")
        public ReviewStatus status;

        @JsonProperty("blockers")
        public Long blockers;

        @JsonProperty("tech_debt")
        public Long techDebt;

        @JsonProperty("skippable")
        public Long skippable;

        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("report")
        public String report;

        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("findings")
        public String findings;
    }

    public enum ReviewStatus {
        @JsonProperty("clean") CLEAN,
        @JsonProperty("blocked") BLOCKED,
        @JsonProperty("skipped") SKIPPED,
    }

    /** The ways in which a delivery ends. */
    public enum Status {
        @JsonProperty("delivered") DELIVERED,
        @JsonProperty("draft") DRAFT,
        @JsonProperty("completed") COMPLETED,
        @JsonProperty("not_delivered") NOT_DELIVERED,
        @JsonProperty("no_changes") NO_CHANGES,
        @JsonProperty("cancelled") CANCELLED,
    }

    /** One step as it happened. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    public static class StepRecord {
        /** a Step's name; commit is a record of its own after implement, fix_tests and fix_review */
        @JsonProperty("step")
        public String step;

        @JsonProperty("attempt")
        public Long attempt;

        /** running, done, cancelled, or failed (run_tests: red; review: blockers found; others: it did not end well, and summary says why) */
        @JsonProperty("status")
        public String status;

        /** RFC 3339 in UTC */
        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("started_at")
        public String startedAt;

        /** in seconds */
        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("duration_s")
        public Double durationS;

        @JsonProperty("turns")
        public Long turns;

        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("commit")
        public String commit;

        /** prepare "setup 17 s · 41 green", plan "feature · 3 tasks, 2 files", implement the model's last line, commit "+48 −7 in 2 files", run_tests "44 green", review "1 blocker, 1 tech debt", open_pull_request "pull request #12" */
        @JsonProperty("summary")
        public String summary;

        /** null when a price is not known */
        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("cost_usd")
        public Double costUsd;
    }

    /** `none`: no test command exists. `skipped`: not selected. `tree_sha`: the git tree that was tested. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    public static class TestsResult {
        @JsonProperty("status")
        public TestsStatus status;

        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("tree_sha")
        public String treeSha;

        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("passed")
        public Long passed;

        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("failed")
        public Long failed;

        /** failed here and not on the base commit; null: cannot be told */
        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("new_failures")
        public Long newFailures;

        /** failed there too, and do not count as red */
        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("known_failures")
        public Long knownFailures;

        /** failed there and passed here */
        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("fixed")
        public Long fixed;

        /** failed, and passed when they were run once more, alone */
        @JsonProperty("flaky")
        public Long flaky;

        /** runs that a signal ended which somebody had sent, and that were done again: no failures, no flakes */
        @JsonProperty("killed_runs")
        public Long killedRuns;

        /** places where the change makes the tests say less than they did on the base */
        @JsonProperty("tampered")
        public Long tampered;

        /** a person's word that red tests were red before, where nothing else can tell; else empty */
        @JsonProperty("accepted")
        public String accepted;

        /** `455/455 of the base's own tests pass on the change · 3 new tests fail without it · canaries caught`; empty: not tried */
        @JsonProperty("experiment")
        public String experiment;

        /** tests of the base that fail on the change, where it has changed them: each was justified by the request, or is a blocker */
        @JsonProperty("promises")
        public Long promises;

        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("report")
        public String report;
    }

    public enum TestsStatus {
        @JsonProperty("green") GREEN,
        @JsonProperty("red") RED,
        @JsonProperty("none") NONE,
        @JsonProperty("skipped") SKIPPED,
    }

    @JsonIgnoreProperties(ignoreUnknown = true)
    public static class UsageResult {
        @JsonProperty("input_tokens")
        public Long inputTokens;

        @JsonProperty("cache_read_tokens")
        public Long cacheReadTokens;

        @JsonProperty("cache_write_tokens")
        public Long cacheWriteTokens;

        @JsonProperty("output_tokens")
        public Long outputTokens;

        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("cost_usd")
        public Double costUsd;

        @JsonProperty("at_risk_usd")
        public Double atRiskUsd;
    }

    /** One thing that happened. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    public static class Event {
        /** place in the stream of this delivery or backlog, from 0; the same whenever the stream is read */
        @JsonProperty("offset")
        public Long offset;

        /** UTC, as `2026-11-23T08:00:00.123Z` */
        @JsonProperty("time")
        public String time;

        /** id of the delivery; null where it is a backlog's own */
        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("delivery")
        public String delivery;

        /** id of the backlog it belongs to, or whose own it is; null without one */
        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("backlog")
        public String backlog;

        /** the backlog's item; null without one */
        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("item")
        public String item;

        /** see EventType, which names the fields of `data` */
        @JsonProperty("type")
        public EventType type;

        /** null where it is of no step; attempt, turn: as in the turn table, null where there is none */
        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("step")
        public String step;

        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("attempt")
        public Long attempt;

        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("turn")
        public Long turn;

        @JsonProperty("data")
        public Map<String, Object> data;
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
    public enum EventType {
        @JsonProperty("started") STARTED,
        @JsonProperty("continued") CONTINUED,
        @JsonProperty("phase") PHASE,
        @JsonProperty("step_started") STEP_STARTED,
        @JsonProperty("activity") ACTIVITY,
        @JsonProperty("step_ended") STEP_ENDED,
        @JsonProperty("step_failed") STEP_FAILED,
        @JsonProperty("commit") COMMIT,
        @JsonProperty("test_result") TEST_RESULT,
        @JsonProperty("review") REVIEW,
        @JsonProperty("question") QUESTION,
        @JsonProperty("gate") GATE,
        @JsonProperty("waiting") WAITING,
        @JsonProperty("decision") DECISION,
        @JsonProperty("said") SAID,
        @JsonProperty("worker_death") WORKER_DEATH,
        @JsonProperty("landing") LANDING,
        @JsonProperty("pull_request") PULL_REQUEST,
        @JsonProperty("receipt") RECEIPT,
        @JsonProperty("item") ITEM,
        @JsonProperty("ended") ENDED,
    }

    /** The answer to update `attach`: the delivery of this id has been accepted, just now or before. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    public static class DeliveryAttached {
        @JsonProperty("delivery_id")
        public String deliveryId;

        @JsonProperty("run_id")
        public String runId;

        @JsonProperty("repository")
        public String repository;

        /** what it is about, in one line of at most 200 characters */
        @JsonProperty("request")
        public String request;

        /** the number of the issue that says so */
        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("issue")
        public Long issue;
    }

    /**
     * The answer to query `progress`: what a live view needs, and nothing that grows without bound.
     * `waiting` says in one line what the delivery waits for, when it waits; `asked` what of that a person decides. `held`: why no further turn begins. `plan`, `report` (of the newest tests), `review`: artifacts. Of the limits, with what people added to them, `budget_tokens` is 0 where there is none; `used_s` of `time_s` seconds are used, waiting for people aside.
     */
    @JsonIgnoreProperties(ignoreUnknown = true)
    public static class Progress {
        @JsonProperty("delivery_id")
        public String deliveryId;

        @JsonProperty("run_id")
        public String runId;

        @JsonProperty("repository")
        public String repository;

        @JsonProperty("status")
        public ProgressStatus status;

        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("phase")
        public String phase;

        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("reason")
        public String reason;

        @JsonProperty("message")
        public String message;

        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("base")
        public String base;

        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("base_sha")
        public String baseSha;

        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("branch")
        public String branch;

        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("head_sha")
        public String headSha;

        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("checkpoint")
        public String checkpoint;

        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("queue")
        public String queue;

        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("budget_usd")
        public Double budgetUsd;

        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("test_fixes")
        public Long testFixes;

        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("review_fixes")
        public Long reviewFixes;

        @JsonProperty("steps")
        public List<StepRecord> steps;

        @JsonProperty("usage")
        public Usage usage;

        @JsonProperty("spend")
        public Spend spend;

        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("pull_request")
        public PullRequest pullRequest;

        @JsonProperty("waiting")
        public String waiting;

        /** The one thing a delivery waits for. */
        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("asked")
        public PendingDecision asked;

        @JsonProperty("unread")
        public Long unread;

        @JsonProperty("held")
        public String held;

        @JsonProperty("plan")
        public String plan;

        @JsonProperty("report")
        public String report;

        @JsonProperty("review")
        public String review;

        @JsonProperty("budget_tokens")
        public Long budgetTokens;

        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("time_s")
        public Double timeS;

        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("used_s")
        public Double usedS;

        @JsonProperty("decisions")
        public List<DecisionMade> decisions;
    }

    /** The one thing a delivery waits for. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    @JsonInclude(JsonInclude.Include.NON_NULL)
    public static class PendingDecision {
        @JsonProperty("gate")
        public Gate gate;

        /** names what is decided: the beginning of the plan's or commit's hash, or a number; a decision repeats it, so that it can never decide something else after a rewind */
        @JsonProperty("of")
        public String of;

        /** what is asked, in one line */
        @JsonProperty("words")
        public String words;

        /** when it began to wait */
        @JsonProperty("since")
        public String since;

        /** when it ends by itself, null: never */
        @JsonProperty("expires")
        public String expires;

        /** An agent's question. `why`: what depends on the answer. */
        @JsonProperty("question")
        public Question question;

        /** which verdicts are open: the names of the updates to send */
        @JsonProperty("options")
        public List<String> options;

        /** which one is reached, at gate budget: usd, tokens or time; that is what add_budget has to raise */
        @JsonProperty("limit")
        public String limit;
    }

    /** An agent's question. `why`: what depends on the answer. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    @JsonInclude(JsonInclude.Include.NON_NULL)
    public static class Question {
        @JsonProperty("text")
        public String text;

        @JsonProperty("kind")
        public QuestionKind kind;

        @JsonProperty("choices")
        public List<String> choices;

        @JsonProperty("why")
        public String why;
    }

    /**
     * `status` of query `progress`, and search attribute PerdureStatus: those of a delivery that goes on, and each
     * Status (docs/events.md).
     */
    public enum ProgressStatus {
        @JsonProperty("running") RUNNING,
        @JsonProperty("waiting") WAITING,
        @JsonProperty("delivered") DELIVERED,
        @JsonProperty("draft") DRAFT,
        @JsonProperty("completed") COMPLETED,
        @JsonProperty("not_delivered") NOT_DELIVERED,
        @JsonProperty("no_changes") NO_CHANGES,
        @JsonProperty("cancelled") CANCELLED,
    }

    public enum QuestionKind {
        @JsonProperty("text") TEXT,
        @JsonProperty("choice") CHOICE,
        @JsonProperty("yes_no") YES_NO,
    }

    /**
     * The spending of a delivery so far, over all its runs, as its spend log has it.
     * `usd` is the sum of settled replies; null when a price is not known: `known_usd` is then the sum of the others. `at_risk_usd` is the upper bound of requests that were sent and never settled (a worker died while the reply came in). `tokens` and `at_risk_tokens` are the same in tokens, read and written; 0 where nobody wrote them down.
     */
    @JsonIgnoreProperties(ignoreUnknown = true)
    public static class Spend {
        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("usd")
        public Double usd;

        @JsonProperty("at_risk_usd")
        public Double atRiskUsd;

        @JsonProperty("known_usd")
        public Double knownUsd;

        @JsonProperty("tokens")
        public Long tokens;

        @JsonProperty("at_risk_tokens")
        public Long atRiskTokens;
    }

    /**
     * Tokens of one or more replies, and their price in US dollars; null when a model's price is not known.
     * `cache_write_1h_tokens` are those of `cache_write_tokens` that were written for an hour, which costs more.
     */
    @JsonIgnoreProperties(ignoreUnknown = true)
    public static class Usage {
        @JsonProperty("input_tokens")
        public Long inputTokens;

        @JsonProperty("cache_read_tokens")
        public Long cacheReadTokens;

        @JsonProperty("cache_write_tokens")
        public Long cacheWriteTokens;

        @JsonProperty("cache_write_1h_tokens")
        public Long cacheWrite1hTokens;

        @JsonProperty("output_tokens")
        public Long outputTokens;

        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("cost_usd")
        public Double costUsd;
    }

    /** The answer to query `progress`, and the result of a backlog that has ended. `asks`: why its branch does not follow its base, for a person to decide by update `follow`; `notes`: the newest ten of what a person should know. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    @JsonInclude(JsonInclude.Include.NON_NULL)
    public static class BacklogProgress {
        @JsonProperty("backlog_id")
        public String backlogId;

        @JsonProperty("run_id")
        public String runId;

        @JsonProperty("repository")
        public String repository;

        @JsonProperty("status")
        public String status;

        @JsonProperty("base")
        public String base;

        @JsonProperty("land")
        public String land;

        @JsonProperty("branch")
        public String branch;

        @JsonProperty("head")
        public String head;

        @JsonProperty("parallel")
        public Long parallel;

        @JsonProperty("budget_usd")
        public Double budgetUsd;

        /** spent by all of its deliveries; left out: nothing; null: a price is not known */
        @JsonProperty("usd")
        public Double usd;

        @JsonProperty("held")
        public String held;

        @JsonProperty("asks")
        public String asks;

        @JsonProperty("waiting")
        public String waiting;

        @JsonProperty("message")
        public String message;

        @JsonProperty("notes")
        public List<String> notes;

        @JsonProperty("pull_request")
        public String pullRequest;

        @JsonProperty("turn")
        public String turn;

        @JsonProperty("began")
        public String began;

        @JsonProperty("items")
        public List<ItemView> items;
    }

    /** One item as it is shown. `phase`: ready, after (others), building, landing, waits (for you), landed, failed, blocked, skipped or cancelled; `because`: why, in one line; unblocks: how many items wait for it; branch, pull_request: in a stack, its own. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    @JsonInclude(JsonInclude.Include.NON_NULL)
    public static class ItemView {
        @JsonProperty("id")
        public String id;

        @JsonProperty("phase")
        public String phase;

        @JsonProperty("because")
        public String because;

        @JsonProperty("caption")
        public String caption;

        @JsonProperty("delivery")
        public String delivery;

        @JsonProperty("commit")
        public String commit;

        @JsonProperty("branch")
        public String branch;

        @JsonProperty("pull_request")
        public String pullRequest;

        @JsonProperty("unblocks")
        public Long unblocks;

        @JsonProperty("depends_on")
        public List<String> dependsOn;

        @JsonProperty("blocked_by")
        public String blockedBy;

        @JsonProperty("gate")
        public String gate;

        @JsonProperty("of")
        public String of;

        @JsonProperty("since")
        public String since;

        @JsonProperty("usd")
        public Double usd;

        @JsonProperty("priority")
        public Long priority;

        @JsonProperty("critical")
        public Boolean critical;
    }

    /** The answer to update `attach`: the backlog of this id has been accepted, just now or before. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    public static class BacklogAttached {
        @JsonProperty("backlog_id")
        public String backlogId;

        @JsonProperty("run_id")
        public String runId;

        @JsonProperty("repository")
        public String repository;

        @JsonProperty("items")
        public Long items;
    }

    /** The body of a webhook's request: JSON, Content-Type application/json. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    public static class WebhookMessage {
        /** everything for a person, in the markup of Slack's incoming webhooks, which Mattermost understands */
        @JsonProperty("text")
        public String text;

        /** of this shape: fields are added within it, none changes its meaning */
        @JsonProperty("version")
        public Long version;

        /** waiting (for approval: of a plan, of tests or of a pull request; with gate null, for a day's budget), question, budget, reminder (of one of these), ended; test: whether this arrives, no delivery is meant */
        @JsonProperty("event")
        public NoticeEvent event;

        /** the same when it is sent again: keep it to tell twice-sent from new; header webhook-id says it, too */
        @JsonProperty("id")
        public String id;

        /** when it happened, RFC 3339 */
        @JsonProperty("at")
        public String at;

        /** the Temporal workflow's */
        @JsonProperty("delivery_id")
        public String deliveryId;

        /** the Temporal workflow's */
        @JsonProperty("run_id")
        public String runId;

        @JsonProperty("repository")
        public String repository;

        /** what the delivery is about, in one line */
        @JsonProperty("request")
        public String request;

        /** where it is */
        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("phase")
        public String phase;

        /** what happened, in one line */
        @JsonProperty("words")
        public String words;

        /** what is decided: plan, pull_request, budget or question, and its name; null with ended */
        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("gate")
        public Gate gate;

        /** what is decided: plan, pull_request, budget or question, and its name; null with ended */
        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("of")
        public String of;

        /** what an agent asked, its kind, choices, and why it matters */
        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("question")
        public Question question;

        /** when it began to wait, and when it ends without a decision; null: never */
        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("since")
        public String since;

        /** when it began to wait, and when it ends without a decision; null: never */
        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("expires")
        public String expires;

        /** the ways to decide */
        @JsonProperty("decisions")
        public List<DecisionOption> decisions;

        @JsonProperty("links")
        public Links links;

        /** spent so far, in dollars; null: not known */
        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("cost_usd")
        public Double costUsd;

        /** with ended: the DeliveryResult, or of a backlog the BacklogProgress, which has a backlog_id; steps and items are left out where they are long */
        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("result")
        public Map<String, Object> result;
    }

    /** A way to decide: the update to send with its JSON, from any Temporal client or the Web UI, or the command. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    public static class DecisionOption {
        @JsonProperty("update")
        public String update;

        @JsonProperty("said")
        public Map<String, Object> said;

        @JsonProperty("command")
        public String command;
    }

    /** Pages in a browser; null where there is none or it is not known. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    public static class Links {
        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("web_ui")
        public String webUi;

        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("pull_request")
        public String pullRequest;
    }

    public enum NoticeEvent {
        @JsonProperty("waiting") WAITING,
        @JsonProperty("question") QUESTION,
        @JsonProperty("budget") BUDGET,
        @JsonProperty("reminder") REMINDER,
        @JsonProperty("ended") ENDED,
        @JsonProperty("test") TEST,
    }

    /** The answer of the plan step: fixed sections, kept as an artifact and shown in the pull request. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    public static class Plan {
        /** imperative, at most 60 characters, no prefix; becomes commit and pull request title */
        @JsonProperty("title")
        public String title;

        @JsonProperty("problem")
        public String problem;

        @JsonProperty("solution")
        public String solution;

        @JsonProperty("relevant_files")
        public List<String> relevantFiles;

        @JsonProperty("tasks")
        public List<Task> tasks;

        /** how a person can check the result, one item each */
        @JsonProperty("validation")
        public List<String> validation;
    }

    @JsonIgnoreProperties(ignoreUnknown = true)
    @JsonInclude(JsonInclude.Include.NON_NULL)
    public static class Task {
        @JsonProperty("title")
        public String title;

        @JsonProperty("details")
        public String details;

        /** paths that will probably change */
        @JsonProperty("files")
        public List<String> files;

        /** who it is for; null where everybody could do it as well */
        @JsonProperty("role")
        public Role role;

        /** numbers of the tasks, from 1, that must be done before it */
        @JsonProperty("depends_on")
        public List<Long> dependsOn;
    }

    /** who it is for; null where everybody could do it as well */
    public enum Role {
        @JsonProperty("backend") BACKEND,
        @JsonProperty("frontend") FRONTEND,
        @JsonProperty("test") TEST,
    }

    /** The results of all test commands on one tree, those first that decide against it. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    public static class TestReport {
        @JsonProperty("commit")
        public String commit;

        @JsonProperty("tree")
        public String tree;

        /** the branch it was compared with; empty when its tests are not known */
        @JsonProperty("base")
        public String base;

        /** one line for whoever reads the report: what is new and what is not */
        @JsonProperty("note")
        public String note;

        /** names of tests, and of commands without a report, that failed on the base and passed now */
        @JsonProperty("fixed")
        public List<String> fixed;

        /** where the change makes the tests say less than on the base: each makes the verdict red, unless `allowed` */
        @JsonProperty("tampering")
        public List<TamperingHit> tampering;

        /** the request itself is about tests (allow_test_changes) */
        @JsonProperty("allowed")
        public Boolean allowed;

        @JsonProperty("commands")
        public List<CommandResult> commands;

        /** the change tried beside its own green tests; null: they were not green, or there is no base */
        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("experiment")
        public Experiment experiment;
    }

    /** the change tried beside its own green tests; null: they were not green, or there is no base */
    @JsonIgnoreProperties(ignoreUnknown = true)
    public static class Experiment {
        @JsonProperty("base")
        public String base;

        @JsonProperty("change")
        public String change;

        /** the name of the base, for people */
        @JsonProperty("branch")
        public String branch;

        /** paths of the test side that differ */
        @JsonProperty("touched")
        public List<String> touched;

        /** the request itself is about tests: tests of the base may be taken away */
        @JsonProperty("allowed")
        public Boolean allowed;

        /** the request asks for something to be removed: tests of the base that went with it are changed promises, for the reviewer to justify with its words */
        @JsonProperty("removes")
        public Boolean removes;

        /** why nothing was tried at all; empty: it was */
        @JsonProperty("skipped")
        public String skipped;

        @JsonProperty("commands")
        public List<CommandExperiment> commands;
    }

    /** Of canaries, tests that always fail: each was reported red; one was not; nobody could be asked. */
    public enum CanaryOutcome {
        @JsonProperty("caught") CAUGHT,
        @JsonProperty("missed") MISSED,
        @JsonProperty("not_asked") NOT_ASKED,
    }

    /** One test command in all experiments. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    public static class CommandExperiment {
        @JsonProperty("name")
        public String name;

        @JsonProperty("command")
        public String command;

        /** tests that were green on the base, and of these green on the change (PASS_TO_PASS); null: not asked, the change leaves the test side alone, or the runner knows only exit codes */
        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("base_tests")
        public Long baseTests;

        /** tests that were green on the base, and of these green on the change (PASS_TO_PASS); null: not asked, the change leaves the test side alone, or the runner knows only exit codes */
        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("base_passed")
        public Long basePassed;

        /** tests of the base that fail on the change, and passed there as the change has them */
        @JsonProperty("promises")
        public List<Promise> promises;

        /** tests of the base that fail on the change, and are gone from it or skipped in it */
        @JsonProperty("taken")
        public List<String> taken;

        /** tests of the base that would pass on the change, and are gone from it or skipped in it */
        @JsonProperty("lost")
        public List<String> lost;

        /** tests of the base that fail on the change, in versions that the change has not made green either: they were while somebody could write to the test side */
        @JsonProperty("contradicted")
        public List<String> contradicted;

        /** see CanaryOutcome */
        @JsonProperty("canaries")
        public CanaryOutcome canaries;

        /** those that were not reported red, though on the base they were */
        @JsonProperty("missed")
        public List<String> missed;

        /** what canaries saw replaced in library modules, such as `json.dumps`, or in the process; not on the base */
        @JsonProperty("replaced")
        public List<String> replaced;

        /** tests that were green on the base and are not in `base_tests` */
        @JsonProperty("not_asked")
        public List<UnaskedTests> notAsked;

        /** tests that are new or changed, pass on the change, and fail without its product files (FAIL_TO_PASS); null: not asked */
        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("proving")
        public List<String> proving;

        /** how many more there are than are named */
        @JsonProperty("proving_unnamed")
        public Long provingUnnamed;

        /** tests that are new or changed and pass on the change, and whose file does not load or build without its product files: a weaker proof, it is one of what they name alone */
        @JsonProperty("unbuilt")
        public List<String> unbuilt;

        /** how many more there are than are named */
        @JsonProperty("unbuilt_unnamed")
        public Long unbuiltUnnamed;

        /** tests that are new or changed, and pass with the bodies of all new functions taken out */
        @JsonProperty("hollow")
        public List<String> hollow;

        /** files of the test side that this command wrote on the change and not on the base */
        @JsonProperty("written")
        public List<String> written;

        /** shared settings of the change without which the base's tests do not even start on it */
        @JsonProperty("steered")
        public List<String> steered;

        /** for people: what could not be asked, and why */
        @JsonProperty("unasked")
        public List<String> unasked;

        /** as in CommandResult */
        @JsonProperty("killed_runs")
        public Long killedRuns;
    }

    /** One test command. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    public static class CommandResult {
        @JsonProperty("name")
        public String name;

        @JsonProperty("command")
        public String command;

        @JsonProperty("directory")
        public String directory;

        @JsonProperty("required")
        public Boolean required;

        /** passed, failed, timed_out, not_started, contradicted (report against exit code) */
        @JsonProperty("verdict")
        public String verdict;

        /** new: something in it did not fail on the base; known: it failed there in the same tests and ended so; undecidable: red there and here, and no report says in what. null: it passed, or no base is known */
        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("since")
        public BaseComparison since;

        /** it failed as a whole, and passed when it was run once more */
        @JsonProperty("flaky")
        public Boolean flaky;

        /** runs that a signal ended which somebody had sent, and that were done again: they show nothing */
        @JsonProperty("killed_runs")
        public Long killedRuns;

        /** it stops at its first failure, or has another part that runs only when the tests pass */
        @JsonProperty("partial")
        public Boolean partial;

        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("exit_code")
        public Long exitCode;

        @JsonProperty("duration_s")
        public Double durationS;

        @JsonProperty("tail")
        public String tail;

        @JsonProperty("reason")
        public String reason;

        /** failed first, of these the new ones before the known ones */
        @JsonProperty("cases")
        public List<TestCase> cases;
    }

    /** new: something in it did not fail on the base; known: it failed there in the same tests and ended so; undecidable: red there and here, and no report says in what. null: it passed, or no base is known */
    public enum BaseComparison {
        @JsonProperty("new") NEW,
        @JsonProperty("known") KNOWN,
        @JsonProperty("undecidable") UNDECIDABLE,
    }

    /** A test of the base that fails on the change, where a test of its name passes with the change's own tests. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    public static class Promise {
        @JsonProperty("name")
        public String name;

        @JsonProperty("file")
        public String file;

        @JsonProperty("message")
        public String message;

        /** the test on the base and on the change, cut; equal ones: only what it uses has changed */
        @JsonProperty("before")
        public String before;

        /** the test on the base and on the change, cut; equal ones: only what it uses has changed */
        @JsonProperty("after")
        public String after;

        /** `under …`: what it fails under, where it passes on the change otherwise; empty: it fails in any run */
        @JsonProperty("condition")
        public String condition;
    }

    /** A way in which a change can make tests say less than they did. */
    public enum Tampering {
        @JsonProperty("gone") GONE,
        @JsonProperty("skipped") SKIPPED,
        @JsonProperty("hollow") HOLLOW,
        @JsonProperty("configuration") CONFIGURATION,
        @JsonProperty("command") COMMAND,
        @JsonProperty("report") REPORT,
    }

    /** One place where the change makes the tests say less (docs/testing.md, perdure.adapters.checks.tamper), or may. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    public static class TamperingHit {
        /** gone, without a twin; skipped, or expected to fail; hollow: it checks nothing any more. Of hints alone: configuration: what is collected, or how; command: it may hide failures; report: product that looks at it */
        @JsonProperty("rule")
        public Tampering rule;

        /** one line for people */
        @JsonProperty("title")
        public String title;

        @JsonProperty("file")
        public String file;

        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("line")
        public Long line;

        /** a few lines: what it was and what it is */
        @JsonProperty("evidence")
        public String evidence;
    }

    /** One test as its runner reported it (docs/testing.md). */
    @JsonIgnoreProperties(ignoreUnknown = true)
    public static class TestCase {
        @JsonProperty("name")
        public String name;

        @JsonProperty("file")
        public String file;

        /** passed, failed, errored or skipped */
        @JsonProperty("outcome")
        public String outcome;

        /** trimmed; of a flaky test, how it failed the first time */
        @JsonProperty("message")
        public String message;

        @JsonProperty("duration_s")
        public Double durationS;

        /** reproduces it alone, in the worktree; empty where its runner cannot */
        @JsonProperty("command")
        public String command;

        /** it failed on the base commit too */
        @JsonProperty("known")
        public Boolean known;

        /** it failed, and passed when it was run once more, alone */
        @JsonProperty("flaky")
        public Boolean flaky;

        /** it is no test, but a program of tests (a file, a Go package) that was not built or did not run to its end; the tests that it has not reached are not among the cases */
        @JsonProperty("is_program")
        public Boolean isProgram;
    }

    /** Tests that were green on the base and that no run asked about the change. `reason`: in a few words. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    public static class UnaskedTests {
        @JsonProperty("number")
        public Long number;

        @JsonProperty("reason")
        public String reason;
    }

    /** The answer of the review step. Only blockers block. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    @JsonInclude(JsonInclude.Include.NON_NULL)
    public static class Review {
        @JsonProperty("summary")
        public String summary;

        @JsonProperty("issues")
        public List<ReviewIssue> issues;

        /** one for each changed promise that was shown */
        @JsonProperty("promises")
        public List<Justification> promises;
    }

    /** The reviewer's answer about one changed promise: a test of the base that fails on the change. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    public static class Justification {
        /** the name of the test, as it was given */
        @JsonProperty("test")
        public String test;

        /** words of the request, exactly as they stand there, that ask for it; empty if none */
        @JsonProperty("quote")
        public String quote;

        /** one sentence */
        @JsonProperty("reason")
        public String reason;
    }

    @JsonIgnoreProperties(ignoreUnknown = true)
    @JsonInclude(JsonInclude.Include.NON_NULL)
    public static class ReviewIssue {
        @JsonProperty("title")
        public String title;

        @JsonProperty("description")
        public String description;

        @JsonProperty("severity")
        public Severity severity;

        /** path in the diff, or empty */
        @JsonProperty("file")
        public String file;

        /** line in the new file, or null */
        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("line")
        public Long line;

        @JsonProperty("suggestion")
        public String suggestion;

        /** pages whose screenshots show it, by their address; empty if none */
        @JsonProperty("screenshots")
        public List<String> screenshots;
    }

    public enum Severity {
        @JsonProperty("blocker") BLOCKER,
        @JsonProperty("tech_debt") TECH_DEBT,
        @JsonProperty("skippable") SKIPPABLE,
    }

    /** Deterministic findings about the change from `base` to `head` (commits), the worst first. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    public static class Findings {
        @JsonProperty("base")
        public String base;

        @JsonProperty("head")
        public String head;

        @JsonProperty("findings")
        public List<Finding> findings;

        /** tests of the base that check something else now: shown to the reviewer */
        @JsonProperty("changed_tests")
        public List<ChangedTest> changedTests;

        /** the size of the change: files and lines */
        @JsonProperty("files")
        public Long files;

        /** the size of the change: files and lines */
        @JsonProperty("added")
        public Long added;

        /** the size of the change: files and lines */
        @JsonProperty("deleted")
        public Long deleted;
    }

    /** A test of the base that is still there and checks something else now: for the reviewer, never a verdict. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    public static class ChangedTest {
        @JsonProperty("name")
        public String name;

        @JsonProperty("file")
        public String file;

        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("line")
        public Long line;

        @JsonProperty("before")
        public String before;

        @JsonProperty("after")
        public String after;
    }

    /** A finding of the engine itself in a change, beside the reviewer's. Never holds the secret it is about. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    public static class Finding {
        @JsonProperty("rule")
        public FindingRule rule;

        @JsonProperty("severity")
        public Severity severity;

        @JsonProperty("title")
        public String title;

        @JsonProperty("description")
        public String description;

        @JsonProperty("file")
        public String file;

        @JsonInclude(JsonInclude.Include.ALWAYS)
        @JsonProperty("line")
        public Long line;

        @JsonProperty("suggestion")
        public String suggestion;
    }

    /** A thing the engine itself looks for in a change. */
    public enum FindingRule {
        @JsonProperty("secret") SECRET,
        @JsonProperty("protected_path") PROTECTED_PATH,
        @JsonProperty("conflict") CONFLICT,
        @JsonProperty("binary") BINARY,
        @JsonProperty("symlink") SYMLINK,
        @JsonProperty("size") SIZE,
        @JsonProperty("tampering") TAMPERING,
        @JsonProperty("unproven") UNPROVEN,
        @JsonProperty("lost_test") LOST_TEST,
        @JsonProperty("filter") FILTER,
        @JsonProperty("leftover") LEFTOVER,
    }

}
