#!/bin/sh
# Installs this release of Towline: checks the digest of every file, then copies them.
#
#   ./install.sh [--prefix DIR] [--icd]      DIR is /usr/local, or ~/.local for a user who is not root
#   ./install.sh --uninstall [--prefix DIR]  removes what was installed there
#
# --icd tells the system's OpenCL loader about Towline (as root): programs then need no `towline run`, only TOWLINE_SERVERS.
# Files that a release before had and this one lacks are removed. The list of installed files is DIR/share/towline/installed.
set -eu
# Others are to use it too.
umask 022

here=$(cd "$(dirname "$0")" && pwd)
vendors=${TOWLINE_ICD_VENDORS:-/etc/OpenCL/vendors}
if [ "$(id -u)" -eq 0 ]; then prefix=/usr/local; else prefix=${HOME:+$HOME/.local}; fi
is_removing= registers=

fail() {
  echo "install.sh: $*" >&2
  exit 1
}
while [ $# -gt 0 ]; do
  case $1 in
    --prefix) [ $# -ge 2 ] || fail "--prefix needs a folder"; prefix=$2; shift ;;
    --prefix=*) prefix=${1#--prefix=} ;;
    --icd) registers=yes ;;
    --uninstall) is_removing=yes ;;
    *) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "$0"; [ "$1" = --help ] || exit 2; exit 0 ;;
  esac
  shift
done
[ -n "$prefix" ] || fail "HOME is not set: give --prefix DIR"
case $prefix in /*) ;; *) fail "--prefix has to be an absolute path, not $prefix" ;; esac
list=$prefix/share/towline/installed

# remove_files: those whose names come in.
remove_files() {
  while IFS= read -r name; do
    rm -f "$prefix/$name"
    # Folders that are empty now; those that others use stay.
    folder=$(dirname "$name")
    while [ "$folder" != . ] && rmdir "$prefix/$folder" 2>/dev/null; do folder=$(dirname "$folder"); done
  done
}

if [ -n "$is_removing" ]; then
  [ -f "$list" ] || fail "there is no Towline below $prefix"
  old=$(cat "$list")
  rm -f "$list"
  rmdir "$prefix/share/towline" 2>/dev/null || true
  printf '%s\n' "$old" | remove_files
  if [ "$(cat "$vendors/towline.icd" 2>/dev/null)" = "$prefix/lib/libtowline_opencl.so" ]; then rm -f "$vendors/towline.icd"; fi
  echo "removed Towline from $prefix"
  exit 0
fi

cd "$here"
[ -f SHA256SUMS ] || fail "there is no SHA256SUMS beside it: unpack the whole archive"
sha256sum --check --strict --quiet SHA256SUMS || fail "files differ from their digests: fetch the archive again; nothing was installed"

if [ -n "$registers" ]; then
  mkdir -p "$vendors" 2>/dev/null && [ -w "$vendors" ] ||
    fail "--icd writes to $vendors, which this user cannot: run it as root; nothing was installed"
fi
new=$(sed 's/^[^ ]*  //' SHA256SUMS)
mkdir -p "$prefix/share/towline"
printf '%s\n' "$new" | while IFS= read -r name; do
  mkdir -p "$(dirname "$prefix/$name")"
  # Under its name only when it is whole: programs may be using the old one.
  cp "$name" "$prefix/$name.new"
  mv -f "$prefix/$name.new" "$prefix/$name"
done
if [ -f "$list" ]; then
  scratch=$(mktemp -d)
  printf '%s\n' "$new" | LC_ALL=C sort >"$scratch/new"
  LC_ALL=C sort "$list" | LC_ALL=C comm -23 - "$scratch/new" | remove_files
  rm -rf "$scratch"
fi
printf '%s\n' "$new" >"$list"
if [ -n "$registers" ]; then
  echo "$prefix/lib/libtowline_opencl.so" >"$vendors/towline.icd"
fi
"$prefix/bin/towline" --version || fail "the program does not run here: this archive is for $(basename "$here")"
case :$PATH: in *":$prefix/bin:"*) ;; *) echo "install.sh: $prefix/bin is not in PATH" ;; esac
