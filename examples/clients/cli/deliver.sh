#!/usr/bin/env bash
# Start a delivery or attach to it, approve its plan, print what came of it; or cancel it. Exit code 1: nothing did.
# deliver.sh ID '{"repository": "https://…", "request": "…", "gates": ["plan"]}' | deliver.sh ID cancel
# Needs the temporal command (perdure brings one) and jq; TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, … say where it goes.
set -euo pipefail
id=$1 request=$2 shown=null

# Start the delivery, or find the one of that id, running or ended, in one call. A bad request fails with InvalidRequest.
start() {
  # Nobody answers without a worker: it is recorded, once.
  temporal --command-timeout 10s workflow execute-update-with-start --type Delivery --task-queue perdure --workflow-id "$id" \
    --id-conflict-policy UseExisting --id-reuse-policy RejectDuplicate `# it runs: attach; it has ended: not a second time` \
    --update-name attach --update-id attach --input "$request" --update-input "$request" --output json |
    jq -r '.updateResult | "attached \(.delivery_id) \(.repository) \(.request)"' # of the one that was there: compare
}

# Print where it stands until it has ended; approve its plan, with a word for its next turn.
follow() {
  while progress=$(temporal workflow query --workflow-id "$id" --name progress --output json | jq '.queryResult[0]') &&
    [[ $(jq -r .status <<<"$progress") =~ ^(running|waiting)$ ]]; do
    if [[ $(jq -r .asked.gate <<<"$progress") == plan ]]; then
      of=$(jq -r .asked.of <<<"$progress")
      temporal workflow signal --workflow-id "$id" --name say --input '{"id": "note-1", "text": "Mind the sign"}' >&2
      temporal workflow update execute --workflow-id "$id" --name approve --input "{\"of\": \"$of\"}" >&2
      echo "approved $of"
    fi
    phase=$(jq -r .phase <<<"$progress")
    [[ $phase == "$shown" ]] || echo "phase $phase"
    shown=$phase
    sleep 0.3
  done
}

if [[ $request == cancel ]]; then
  temporal workflow cancel --workflow-id "$id" >&2
else
  start
  follow
fi
end=$(temporal workflow result --workflow-id "$id" --output json) || true # exit code 1: not delivered, refused, cancelled
jq -c '.closeEvent | .workflowExecutionCompletedEventAttributes.result[0]
  // (.workflowExecutionFailedEventAttributes.failure | .applicationFailureInfo.details[0]? // .message?) // .eventType' <<<"$end"
[[ $(jq -r .status <<<"$end") == COMPLETED ]]
