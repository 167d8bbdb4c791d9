// Start a delivery or attach to it, approve its plan, print what came of it; or cancel it. Exit code 1: nothing did.
// deliver ID '{"repository": "https://…", "request": "…", "gates": ["plan"]}' | deliver ID cancel
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"example.com/perdure/perdure"
	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	"go.temporal.io/sdk/temporal"
)

func main() {
	ctx, id, request := context.Background(), os.Args[1], os.Args[2]
	c := must(client.Dial(envconfig.MustLoadDefaultClientOptions())) // TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, …
	if request == "cancel" {
		check(c.CancelWorkflow(ctx, id, ""))
	} else {
		startOrAttach(ctx, c, id, json.RawMessage(request))
		followUntilEnd(ctx, c, id)
	}
	var result perdure.DeliveryResult
	err := c.GetWorkflow(ctx, id, "").Get(ctx, &result)
	if failure := new(temporal.ApplicationError); errors.As(err, &failure) && failure.Type() == "NotDelivered" {
		err = failure.Details(&result) // the same object, with status and reason
		defer os.Exit(1)
	}
	check(err) // InvalidRequest, or cancelled
	check(json.NewEncoder(os.Stdout).Encode(result))
}

func startOrAttach(ctx context.Context, c client.Client, id string, request json.RawMessage) {
	ctx, stop := context.WithTimeout(ctx, 10*time.Second) // nobody answers without a worker: it is recorded, once
	defer stop()
	var there perdure.DeliveryAttached // of the delivery that was there already, where one was: compare
	check(must(c.UpdateWithStartWorkflow(ctx, client.UpdateWithStartWorkflowOptions{
		StartWorkflowOperation: c.NewWithStartWorkflowOperation(client.StartWorkflowOptions{ID: id, TaskQueue: "perdure",
			WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,  // it runs: attach
			WorkflowIDReusePolicy:    enums.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE, // it has ended: not a second time
		}, "Delivery", request),
		UpdateOptions: client.UpdateWorkflowOptions{UpdateName: "attach", UpdateID: "attach", Args: []any{request}, WaitForStage: client.WorkflowUpdateStageCompleted},
	})).Get(ctx, &there)) // a bad request is an InvalidRequest, which names the field
	fmt.Println("attached", id, there.Repository, there.Request)
}

func followUntilEnd(ctx context.Context, c client.Client, id string) {
	var progress perdure.Progress
	for shown, ended := "", false; !ended; time.Sleep(300 * time.Millisecond) {
		check(must(c.QueryWorkflow(ctx, id, "", "progress")).Get(&progress))
		ended = progress.Status != perdure.ProgressStatusRunning && progress.Status != perdure.ProgressStatusWaiting
		if asked := progress.Asked; asked != nil && asked.Gate == perdure.GatePlan {
			check(c.SignalWorkflow(ctx, id, "", "say", perdure.Say{ID: "note-1", Text: "Mind the sign"}))
			check(must(c.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{WorkflowID: id, UpdateName: "approve",
				Args: []any{perdure.Approve{Of: asked.Of}}, WaitForStage: client.WorkflowUpdateStageCompleted})).Get(ctx, nil))
			fmt.Println("approved", asked.Of)
		}
		if progress.Phase != nil && *progress.Phase != shown {
			shown = *progress.Phase
			fmt.Println("phase", shown)
		}
	}
}

func must[T any](value T, err error) T { check(err); return value }

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
