#!/bin/sh
# Sees to it that the databases that tests start are installed: PostgreSQL, PgBouncer, MariaDB.
#
# From Debian's packages, as root; elsewhere it says what is missing, and the tests skip that. Only the programs are
# wanted: the services that come with them are not started.
set -eu

missing=
ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null || missing="$missing postgresql"
command -v pgbouncer >/dev/null || [ -x /usr/sbin/pgbouncer ] || missing="$missing pgbouncer"
command -v mariadbd >/dev/null || [ -x /usr/sbin/mariadbd ] || missing="$missing mariadb-server"
[ -n "$missing" ] || exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "not installed, and not for us to install:$missing"
    exit 0
fi

# Packages start their services unless this says no. Source: invoke-rc.d(8); deb-systemd-invoke(1p) asks it too.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
fi
apt-get update -qq
# shellcheck disable=SC2086  # several names
DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $missing >/dev/null
