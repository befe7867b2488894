#!/usr/bin/env bash
# Brings what pip cannot; silent when nothing is missing.
#   setup-system.sh venv DIR    a virtual environment of Python 3.11 or newer
#   setup-system.sh programs    what the tests start: servers, a browser and what draws without one,
#                               and Java for the validator of PDFs
#   setup-system.sh drawing     of these, what the demonstration draws PDFs with
set -euo pipefail

# program, library or font → Debian package
serving=(
  "initdb                   postgresql"
  "postgres                 postgresql"
  "pgbouncer                pgbouncer"
  "redis-server             redis-server"
  "curl                     curl"
)
validating=(
  "javac                    default-jdk-headless"
  "jaxb-runtime.jar         libjaxb-java"
)
drawing=(
  "chromium                 chromium"
  "chromium                 chromium-headless-shell"
  "chrome-sandbox           chromium-sandbox"
  "libatomic.so.1           libatomic1"
  "libpangoft2-1.0.so.0     libpangoft2-1.0-0"
  "libharfbuzz-subset.so.0  libharfbuzz-subset0"
  "DejaVuSans.ttf           fonts-dejavu-core"
)

fail() {
  printf '%s\n' "$@" >&2
  exit 1
}

# Runs a command as root, if that is possible without asking anybody.
as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

may_install() {
  command -v apt-get >/dev/null && as_root true 2>/dev/null
}

apt_install() {
  echo "Installing $*"
  as_root apt-get -qq update >/dev/null || true
  as_root env DEBIAN_FRONTEND=noninteractive DEBCONF_NOWARNINGS=yes apt-get -qq install -y --no-install-recommends "$@" >/dev/null
}

present() {
  command -v "$1" >/dev/null ||
    compgen -G "/usr/lib/postgresql/*/bin/$1" >/dev/null ||
    compgen -G "/usr/lib/*/$1" >/dev/null ||
    compgen -G "/usr/sbin/$1" >/dev/null ||
    compgen -G "/usr/share/java/$1" >/dev/null ||
    compgen -G "/usr/share/fonts/truetype/*/$1" >/dev/null
}

# The tests start servers of their own, so Debian need not create one.
install_packages() {
  local drop_in=/etc/postgresql-common/createcluster.d/kesin-setup.conf status=0
  as_root mkdir -p "${drop_in%/*}"
  echo "create_main_cluster = false" | as_root tee "$drop_in" >/dev/null
  apt_install "$@" || status=$?
  as_root rm -f "$drop_in"
  return "$status"
}

# The packages of whatever is not here, each once.
lacking() {
  local line program package
  for line in "$@"; do
    read -r program package <<<"$line"
    present "$program" || echo "$package"
  done | sort -u
}

# The missing packages but those of this pattern, if there are such and others.
install_without() {
  local wanted
  mapfile -t wanted < <(printf '%s\n' "${missing[@]}" | grep -vE -- "$1")
  [ ${#wanted[@]} -lt ${#missing[@]} ] || return 1
  [ ${#wanted[@]} -eq 0 ] || install_packages "${wanted[@]}"
}

programs() {
  local missing
  mapfile -t missing < <(lacking "$@")
  [ ${#missing[@]} -gt 0 ] || return 0
  may_install || fail "These packages are missing, and only root can install them: ${missing[*]}" \
    "Install them, for example: sudo apt-get install ${missing[*]}"
  # Not every Debian has the headless shell, which is only quicker than the full browser.
  install_packages "${missing[@]}" || install_without '-headless-shell$' && return
  # Ubuntu has Chromium as a snap only: everything but the browser's own tests does without.
  install_without '^chromium' || fail "apt-get could not install: ${missing[*]}"
  echo "Chromium could not be installed: PDFs are drawn by WeasyPrint, and its tests will fail" >&2
}

recent() {
  "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
  local candidate
  for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
    if recent "$candidate"; then
      echo "$candidate"
      return
    fi
  done
  return 1
}

venv() {
  local dir=$1 python package
  if recent "$dir/bin/python" && "$dir/bin/python" -m pip --version >/dev/null 2>&1; then
    return
  fi
  python=$(find_python) || fail \
    "Kesin needs Python 3.11 or newer; ${PYTHON:-python3} says: $("${PYTHON:-python3}" --version 2>&1)" \
    "Install one, or name it: make install PYTHON=/path/to/python3"
  if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    may_install || fail "$python lacks the venv module. Install it: sudo apt-get install $package"
    apt_install "$package" || fail "apt-get could not install $package, which $python needs for its venv module"
  fi
  "$python" -m venv --clear "$dir"
}

case "${1:-}" in
  venv) venv "${2:?the folder of the virtual environment}" ;;
  programs) programs "${serving[@]}" "${drawing[@]}" "${validating[@]}" ;;
  drawing) (programs "${drawing[@]}") || echo "The demonstration goes on with what is here" >&2 ;;
  *) fail "usage: setup-system.sh venv DIR | programs | drawing" ;;
esac
