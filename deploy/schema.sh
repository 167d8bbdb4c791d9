#!/bin/sh
# Creates or updates Temporal's two databases on PostgreSQL. Runs in temporalio/admin-tools; safe to run again.
set -eu

schema=${SCHEMA_DIRECTORY:-/etc/temporal/schema/postgresql/v12}

sql() {
    database=$1
    shift
    temporal-sql-tool --plugin postgres12 --ep "$POSTGRES_SEEDS" -p "${DB_PORT:-5432}" \
        -u "$POSTGRES_USER" --pw "$POSTGRES_PWD" --db "$database" "$@"
}

for pair in temporal:temporal temporal_visibility:visibility; do
    database=${pair%%:*}
    sql "$database" create
    sql "$database" setup-schema -v 0.0
    sql "$database" update-schema -d "$schema/${pair##*:}/versioned"
done
