#!/bin/sh
# After it was removed. The account and its files stay: they are the administrator's to keep.
set -e
case $1 in
  remove | purge | 0)
    if [ -f /etc/apparmor.d/towline ]; then
      [ ! -d /sys/kernel/security/apparmor ] || apparmor_parser --remove /etc/apparmor.d/towline >/dev/null 2>&1 || true
      rm -f /etc/apparmor.d/towline
    fi
    ;;
esac
[ ! -d /run/systemd/system ] || systemctl daemon-reload
