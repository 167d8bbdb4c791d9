// A workflow of your own that has a delivery as its child, waits for it, and cancels it when it is cancelled itself.
// child ID '{"repository": "https://…", "request": "…"}'
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"

	"example.com/perdure/perdure"
	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

const queue = "releases"

// Release returns the pull request's URL. A delivery that ended without delivering fails this workflow, too.
func Release(ctx workflow.Context, request json.RawMessage) (string, error) {
	ctx = workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
		WorkflowID:          workflow.GetInfo(ctx).WorkflowExecution.ID + "-delivery", // the same for every attempt and replay
		TaskQueue:           "perdure",
		WaitForCancellation: true,                                     // until it has tidied up
		ParentClosePolicy:   enums.PARENT_CLOSE_POLICY_REQUEST_CANCEL, // likewise where this one is terminated
	})
	var result perdure.DeliveryResult
	if err := workflow.ExecuteChildWorkflow(ctx, "Delivery", request).Get(ctx, &result); err != nil {
		return "", err
	}
	return result.PullRequest.URL, nil
}

func main() {
	c, err := client.Dial(envconfig.MustLoadDefaultClientOptions()) // TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, …
	check(err)
	w := worker.New(c, queue, worker.Options{})
	w.RegisterWorkflow(Release)
	check(w.Start())
	defer w.Stop()
	options := client.StartWorkflowOptions{ID: os.Args[1], TaskQueue: queue}
	run, err := c.ExecuteWorkflow(context.Background(), options, Release, json.RawMessage(os.Args[2]))
	check(err)
	var url string
	check(run.Get(context.Background(), &url))
	fmt.Println(url)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
