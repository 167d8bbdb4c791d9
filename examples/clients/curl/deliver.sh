#!/usr/bin/env bash
# Start a delivery or attach to it, approve its plan, print what came of it; or cancel it. Exit code 1: nothing did.
# deliver.sh ID '{"repository": "https://…", "request": "…", "gates": ["plan"]}' | deliver.sh ID cancel
# Needs curl and jq. TEMPORAL_UI: a Web UI of Temporal, whose HTTP API this is: the first line of `perdure ui`, up to the port.
set -euo pipefail
id=$1 request=$2 shown=null api=${TEMPORAL_UI:-http://127.0.0.1:8233}/api/v1
cookies=$(mktemp) && trap 'rm -f "$cookies"' EXIT
curl -fsS -c "$cookies" -o "$cookies.out" "$api/settings" && rm -f "$cookies.out"
csrf=$(awk '$6 == "_csrf" {print $7}' "$cookies") # the Web UI takes no POST without its cookie in a header as well

# Send JSON to a path of the workflow, and print the answer; its error is {"code": …, "message": …}.
post() {
  curl -sS --fail-with-body --max-time "${3:-60}" -b "$cookies" -H "X-CSRF-TOKEN: $csrf" -H "Content-Type: application/json" \
    -d "$2" "$api/namespaces/${TEMPORAL_NAMESPACE:-default}/workflows/$id$1"
}

# Arguments travel as payloads: bytes in base64, and how they are encoded.
payloads() { jq -n --arg json "$1" '{payloads: [{metadata: {encoding: ("json/plain" | @base64)}, data: ($json | @base64)}]}'; }
decode() { jq -r '.payloads[0].data | @base64d'; }

update() { # NAME ID ARGUMENT: wait for the answer; a refused one ends this
  local answer
  answer=$(post "/update/$1" "$(jq -n --arg id "$2" --arg name "$1" --argjson args "$(payloads "$3")" \
    '{waitPolicy: {lifecycleStage: "UPDATE_WORKFLOW_EXECUTION_LIFECYCLE_STAGE_COMPLETED"},
      request: {meta: {updateId: $id}, input: {name: $name, args: $args}}}')" 10) || return
  jq -e '.outcome.success | select(.)' <<<"$answer" | decode || { jq -r '.outcome.failure.message' <<<"$answer" >&2 && exit 1; }
}

start() {
  # It runs: nothing is started; it has ended: never a second time (409). HTTP has no update-with-start: attach follows,
  # and finds nothing (404) where the request was wrong and has failed already: the end below says why.
  post "" "$(jq -n --argjson input "$(payloads "$request")" \
    '{workflowType: {name: "Delivery"}, taskQueue: {name: "perdure"}, input: $input,
      workflowIdConflictPolicy: "WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING",
      workflowIdReusePolicy: "WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE"}')" >&2 || true
  update attach attach "$request" | jq -r '"attached \(.delivery_id) \(.repository) \(.request)"'
}

follow() {
  while progress=$(post /query/progress '{}' | jq .queryResult | decode) && [[ $(jq -r .status <<<"$progress") =~ ^(running|waiting)$ ]]; do
    if [[ $(jq -r .asked.gate <<<"$progress") == plan ]]; then
      post /signal/say "{\"input\": $(payloads '{"id": "note-1", "text": "Mind the sign"}')}" >&2
      of=$(jq -r .asked.of <<<"$progress")
      update approve "approve-$of" "{\"of\": \"$of\"}" >&2
      echo "approved $of"
    fi
    phase=$(jq -r .phase <<<"$progress")
    [[ $phase == "$shown" ]] || echo "phase $phase"
    shown=$phase
    sleep 0.3
  done
}

if [[ $request == cancel ]]; then
  post /cancel '{}' >&2
elif start; then
  follow
fi
end=
until [[ $end ]]; do # the last event; asked again where none came in time
  end=$(curl -sS --max-time 60 -G -d waitNewEvent=true -d historyEventFilterType=HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT \
    "$api/namespaces/${TEMPORAL_NAMESPACE:-default}/workflows/$id/history" |
    jq '.history.events[-1] // empty') || true
done
jq -r '(.workflowExecutionCompletedEventAttributes.result // .workflowExecutionFailedEventAttributes.failure.applicationFailureInfo.details
  | (.payloads[0].data // empty) | @base64d)? // .workflowExecutionFailedEventAttributes.failure.message // .eventType' <<<"$end"
[[ $(jq -r .eventType <<<"$end") == EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED ]]
