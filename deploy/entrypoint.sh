#!/bin/sh
# Starts the worker; with a command, that command instead (`docker run … perdure doctor`).
#
# A secret may come as NAME, or as NAME_FILE naming a file that holds it (Docker and Kubernetes secrets).
set -eu

for name in ANTHROPIC_API_KEY PERDURE_GITHUB_TOKEN TEMPORAL_API_KEY; do
    eval "file=\${${name}_FILE:-}"
    [ -n "$file" ] || continue
    [ -r "$file" ] || {
        printf 'error: %s_FILE cannot be read\n  where: %s\n  fix: mount the secret there, readable for uid %s\n' \
            "$name" "$file" "$(id -u)" >&2
        exit 2
    }
    value=$(cat "$file")
    export "$name=$value"
    unset "${name}_FILE"
done

case "${1:-}" in
'' | -*) exec perdure worker "$@" ;;
*) exec "$@" ;;
esac
