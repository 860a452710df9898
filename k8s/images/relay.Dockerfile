# The relay, and its preflight. Build it in the repository's folder: docker build -f k8s/images/relay.Dockerfile .
FROM rust:1.95.0-bookworm AS build
# For the bundled aws-lc and libopus.
RUN apt-get update && apt-get install -y --no-install-recommends cmake && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
# What build_info shows as the commit; .git is not in here. Unset, it shows none.
ARG FIRSTHOP_COMMIT
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    cargo build --locked --release -p firsthop-relay --bin relay --bin preflight \
    && mkdir bin && cp target/release/relay target/release/preflight bin/ \
    && strip --strip-debug bin/*

# glibc, libgcc, the certificates of the public authorities, /etc/passwd; no shell.
FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /src/bin/ /usr/local/bin/
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/relay"]
