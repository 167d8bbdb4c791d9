#!/bin/sh
# Creates the namespace and the search attributes Perdure shows deliveries by. Safe to run again.
set -eu

namespace=${TEMPORAL_NAMESPACE:-default}

waited=0
until temporal operator cluster health >/dev/null 2>&1; do
    waited=$((waited + 1))
    [ "$waited" -lt 60 ] || {
        printf 'error: Temporal does not answer\n  where: %s\n  fix: look at the logs of the service "temporal"\n' \
            "${TEMPORAL_ADDRESS:-127.0.0.1:7233}" >&2
        exit 3
    }
    sleep 1
done

if ! temporal operator namespace describe -n "$namespace" >/dev/null 2>&1; then
    temporal operator namespace create -n "$namespace" --retention "${PERDURE_RETENTION:-90d}"
fi

# A namespace that was made a moment ago is not known to every service yet.
attribute() {
    tries=0
    until temporal operator search-attribute create -n "$namespace" --name "$1" --type "$2"; do
        tries=$((tries + 1))
        [ "$tries" -lt 30 ] || exit 1
        sleep 1
    done
}

for name in PerdureRepository PerdurePhase PerdureStatus PerdureBranch PerdurePullRequest \
    PerdureChange PerdureWaiting PerdureTitle; do
    attribute "$name" Keyword
done
attribute PerdureLabels KeywordList
attribute PerdureCostUsd Double
