# Apache Traffic Server as Debian ships it, in its own directory and in front of the origin. It has
# one thread for connections, and writes its log after one second, not five. HWLOC_THISSYSTEM=0
# keeps it on the CPU that the study has chosen.
cp /etc/trafficserver/*.* .
for path in prefix exec_prefix bindir sbindir sysconfdir datadir includedir libdir libexecdir \
    localstatedir runtimedir logdir mandir infodir cachedir; do
    echo "$path: ."
done >runroot.yaml
echo '{home} 256M' >storage.config
echo 'map / http://{origin}/' >remap.config
cat >>records.config <<END
CONFIG proxy.config.http.server_ports STRING {port}:ip-in={host}
CONFIG proxy.config.exec_thread.autoconfig INT 0
CONFIG proxy.config.exec_thread.limit INT 1
CONFIG proxy.config.log.max_secs_per_buffer INT 1
END
cat >logging.yaml <<'END'
logging:
  formats:
    - name: combined
      format: '%<chi> - %<caun> [%<cqtn>] "%<cqtx>" %<pssc> %<pscl>
        "%<{Referer}cqh>" "%<{User-Agent}cqh>"'
  logs:
    - filename: access
      format: combined
END
HWLOC_THISSYSTEM=0 exec traffic_server
