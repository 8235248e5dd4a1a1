# The gate in a container. It must see the host: run it with the host's PID namespace and with
# its root folder's /proc, /sys and /dev, and with the driver's libraries injected by the engine:
#
#   podman run --rm --init --pid=host --device nvidia.com/gpu=all --cap-add SYSLOG \
#       -v /dev/kmsg:/dev/kmsg:ro -v /var/lib/nodegate:/var/lib/nodegate nodegate run
#
# glibc, not musl: a static binary cannot open the driver's library.
FROM rust:1.95-bookworm AS build
WORKDIR /build
COPY . .
RUN cargo build --release --locked -p nodegate

FROM debian:bookworm-slim
COPY --from=build /build/target/release/nodegate /usr/bin/nodegate
VOLUME /var/lib/nodegate
ENTRYPOINT ["/usr/bin/nodegate"]
CMD ["run"]
