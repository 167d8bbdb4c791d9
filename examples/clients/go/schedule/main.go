// A delivery every night at three: a Temporal schedule, which begins none while the last one runs.
// schedule ID '{"repository": "https://…", "request": "…"}'
// What it starts is called ID with the time: ID-2026-11-28T03:00:00Z.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"

	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
)

func main() {
	id, request := os.Args[1], json.RawMessage(os.Args[2])
	c, err := client.Dial(envconfig.MustLoadDefaultClientOptions()) // TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, …
	if err != nil {
		log.Fatal(err)
	}
	_, err = c.ScheduleClient().Create(context.Background(), client.ScheduleOptions{
		ID: id,
		Spec: client.ScheduleSpec{
			Calendars:    []client.ScheduleCalendarSpec{{Hour: []client.ScheduleRange{{Start: 3}}}},
			TimeZoneName: "Europe/Berlin",
		},
		Action:  &client.ScheduleWorkflowAction{ID: id, Workflow: "Delivery", Args: []any{request}, TaskQueue: "perdure"},
		Overlap: enums.SCHEDULE_OVERLAP_POLICY_SKIP,
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("scheduled", id)
}
