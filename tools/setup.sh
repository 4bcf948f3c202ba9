# Set-up shared by run.sh and test.sh; sourced, not run. Needs bash. Defines kuruma_setup, which
# installs the Debian / Ubuntu packages that are missing and says so on stderr; `kuruma_setup tests`
# also installs the browser that tests/page drives.

# A closed stdin would hand descriptor 0 to the next file opened.
{ true <&0; } 2>/dev/null || exec </dev/null

KURUMA_PACKAGES=(
  g++ make cmake ninja-build ccache pkg-config                      # the build
  libfmt-dev libspdlog-dev libcli11-dev nlohmann-json3-dev          # text, logs, flags, documents
  libsimdjson-dev libutf8proc-dev libedit-dev libssl-dev            # parsing, Unicode, line editing, SHA-256
  libboost-dev libtomlplusplus-dev                                  # HTTP server, configuration files
  libgtest-dev libbenchmark-dev                                     # tests, benchmarks
  python3 python3-venv ca-certificates                              # checks, tokenizer download
)

kuruma_say() { printf '== %s\n' "$*" >&2; }

# Prints the packages of KURUMA_PACKAGES that dpkg does not list as installed.
kuruma_missing_packages() {
  local package state
  for package in "${KURUMA_PACKAGES[@]}"; do
    state=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
    [[ $state == installed ]] || printf '%s\n' "$package"
  done
}

# Adds the browser to KURUMA_PACKAGES, unless there is one. Ubuntu has Chromium as a snap only, which
# apt-get cannot install everywhere: there the tests of the page say what they need.
kuruma_want_browser() {
  local program
  for program in "${CHROMIUM:-chromium}" chromium chromium-browser google-chrome google-chrome-stable; do
    if command -v "$program" >/dev/null; then return 0; fi
  done
  if grep -q '^ID=ubuntu' /etc/os-release 2>/dev/null; then
    kuruma_say "no Chromium here: install one, or set CHROMIUM to a program, for tests/page"
  else
    KURUMA_PACKAGES+=(chromium)
  fi
}

kuruma_setup() {
  if [[ ${1:-} == tests ]]; then kuruma_want_browser; fi
  if ! command -v dpkg-query >/dev/null; then
    kuruma_say "no dpkg here: going on with what is installed (CONTRIBUTING.md lists what is needed)"
    return 0
  fi
  local -a missing as_root=()
  mapfile -t missing < <(kuruma_missing_packages)
  if ((${#missing[@]} == 0)); then
    kuruma_say "set-up: all ${#KURUMA_PACKAGES[@]} packages are installed"
    return 0
  fi
  if ((EUID != 0)); then
    if ! command -v sudo >/dev/null; then
      kuruma_say "missing packages: ${missing[*]}"
      kuruma_say "this user is not root and there is no sudo; ask an administrator to run:"
      kuruma_say "  apt-get update && apt-get install --no-install-recommends ${missing[*]}"
      return 1
    fi
    as_root=(sudo)
  fi
  local -a apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get
    -y -q -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
  kuruma_say "installing what the build and the tests need: ${missing[*]}"
  if ! "${apt[@]}" update </dev/null >&2 ||
    ! "${apt[@]}" install --no-install-recommends "${missing[@]}" </dev/null >&2; then
    kuruma_say "apt-get could not install: ${missing[*]}"
    return 1
  fi
}
