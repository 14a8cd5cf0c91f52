#!/bin/sh
# Before it is removed, not before an upgrade.
set -e
[ -d /run/systemd/system ] || exit 0
case $1 in
  remove | 0) systemctl disable --now towline.service towline.socket ;;
esac
