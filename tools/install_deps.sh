#!/bin/sh
# Installs what building and testing tersewire needs from Debian's or Ubuntu's packages; with
# `program`, only what training in one process needs; with `schedulers`, also Slurm and npm, for tests
# that are skipped without them. Does nothing where all of it is there. Uses sudo where it is not run as root.
set -eu

packages="
  g++ cmake make ninja-build
  libhwy-dev libfmt-dev libxxhash-dev
  libtorch-dev libopenblas0-pthread zlib1g-dev
  libcli11-dev nlohmann-json3-dev"
if [ "${1:-}" != program ]; then
  packages="$packages
    libturbojpeg0-dev libpng-dev
    libopenmpi-dev openmpi-bin
    libgrpc++-dev
    libprotobuf-dev protobuf-compiler libisal-dev libmicrohttpd-dev
    libcurl4-openssl-dev ca-certificates libssl-dev libarchive-dev
    libgtest-dev librandom123-dev verilator
    python3 python3-dev python3-venv libdlpack-dev
    libsnappy-dev liblz4-dev libzstd-dev libzfp-dev
    iproute2 nftables iptables libnetfilter-queue-dev"
  # Optional, and of Ubuntu's there is only a snap.
  grep -q '^ID=ubuntu' /etc/os-release 2>/dev/null || packages="$packages chromium"
fi
if [ "${1:-}" = schedulers ]; then
  packages="$packages slurmd slurmctld slurm-client munge"
  command -v npm >/dev/null || packages="$packages npm"
fi

missing=""
for package in $packages; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

echo "Installing these packages with apt-get:$missing"
as_root=""
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "Not root and no sudo here: install these packages by hand:$missing" >&2
    exit 1
  fi
  as_root=sudo
fi
export DEBIAN_FRONTEND=noninteractive
$as_root apt-get update -qq
found=""
nowhere=""
for package in $missing; do
  if LC_ALL=C apt-cache policy "$package" | grep -q 'Candidate: [^(]'; then
    found="$found $package"
  else
    nowhere="$nowhere $package"
  fi
done
if [ -n "$nowhere" ]; then
  echo "This system's packages do not include:$nowhere. What needs them is left out, as CMake reports." >&2
fi
# shellcheck disable=SC2086 # a list of words
[ -z "$found" ] || $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $found >/dev/null
case "$nowhere " in
*" libtorch-dev "*)
  [ -n "${CMAKE_PREFIX_PATH:-}" ] || {
    echo "Without libtorch nothing trains: 'pip install torch --index-url https://download.pytorch.org/whl/cpu'," \
      "and set CMAKE_PREFIX_PATH to what python's torch.utils.cmake_prefix_path is." >&2
    [ "${1:-}" != program ] || exit 1
  }
  ;;
esac
