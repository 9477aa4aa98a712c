# Caddy with Orderly, in an image of its own.
#
#     docker build -t orderly .                                # the file and the memory engine
#     docker build -t orderly --build-arg ENGINES="etcd redis" . # and these
#
# Behind a proxy for Go modules: --build-arg GOPROXY=...
# Dependabot follows the names of images only where they stand in full.
FROM golang:1.26-bookworm AS build
# Another version of Caddy than the one in go.mod.
ARG CADDY_VERSION=
ARG GOPROXY=https://proxy.golang.org,direct
ARG ENGINES=
ENV GOPROXY=${GOPROXY} GOTOOLCHAIN=local GOWORK=off CGO_ENABLED=0 GOFLAGS=-buildvcs=false
WORKDIR /src
# The version of xcaddy stands in .ci/xcaddy/go.mod.
COPY .ci/xcaddy .ci/xcaddy
RUN cd .ci/xcaddy && go build -o /usr/local/bin/xcaddy github.com/caddyserver/xcaddy/cmd/xcaddy
COPY . .
# The versions are those that the modules require of each other.
RUN module=github.com/orderly-http/caddy-orderly; \
    set -- --with "$module@v0.0.0=/src"; \
    for engine in $ENGINES; do \
        set -- "$@" --with "$module/serializer/$engine@v0.0.0=/src/serializer/$engine" --with "$module/modules/$engine@v0.0.0=/src/modules/$engine"; \
    done; \
    caddy=${CADDY_VERSION:-$(go list -m -f '{{.Version}}' github.com/caddyserver/caddy/v2)} && \
    XCADDY_SETCAP=0 xcaddy build "$caddy" --output /caddy "$@"

FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates curl libcap2-bin media-types \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 999 --user-group --home-dir /var/lib/caddy --create-home --shell /usr/sbin/nologin caddy \
    && install -d -o caddy -g caddy -m 0700 /var/lib/caddy/queues /data /config \
    && install -d /etc/caddy /srv
COPY --from=build /caddy /usr/bin/caddy
COPY --chmod=0644 examples/container/Caddyfile /etc/caddy/Caddyfile
# For the ports 80 and 443, without root.
RUN setcap cap_net_bind_service=+ep /usr/bin/caddy
ENV XDG_CONFIG_HOME=/config XDG_DATA_HOME=/data
# As a number, so that Kubernetes can tell that it is not root.
USER 999:999
WORKDIR /srv
# Lock files need a directory that all containers of one queue share, and that
# keeps the guard when a container is made anew.
VOLUME ["/data", "/config", "/var/lib/caddy/queues"]
EXPOSE 80 443 443/udp
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s CMD ["curl", "-fsS", "-o", "/dev/null", "http://localhost:2019/config/"]
CMD ["caddy", "run", "--config", "/etc/caddy/Caddyfile", "--adapter", "caddyfile"]
