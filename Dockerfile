# Lethe's images. Build one with: docker build --target cpu -t lethe .   (or --target cuda)
# deploy/packages is the same script that deploy/quickstart runs, so an image holds nothing of its own making.
# deploy/compose.yaml runs it: read-only, without capabilities, core dumps or swap.

FROM debian:12-slim AS build
WORKDIR /src
COPY deploy/packages deploy/packages
RUN deploy/packages
COPY . .
RUN cmake --preset cpu-release -DLETHE_BUILD_TESTS=OFF && cmake --build build/cpu-release

FROM debian:12-slim AS cpu
RUN apt-get update && apt-get install -y --no-install-recommends libgrpc++1.51 libssl3 libsqlite3-0 && rm -rf /var/lib/apt/lists/* \
    && groupadd --system --gid 10001 lethe \
    && useradd --system --uid 10001 --gid 10001 --home-dir /var/lib/lethe --shell /usr/sbin/nologin lethe \
    && install -d -o lethe -g lethe -m 0700 /var/lib/lethe /var/lib/lethe-ledger
COPY --from=build /src/build/cpu-release/bin/ /usr/local/bin/
COPY --from=build /src/models/ /usr/share/lethe/models/
RUN install -d /usr/share/bash-completion/completions && lethe completion bash > /usr/share/bash-completion/completions/lethe
USER 10001:10001
# The second is the erasure ledger: needed to start, no part of a backup of the first.
VOLUME /var/lib/lethe /var/lib/lethe-ledger
STOPSIGNAL SIGTERM
# The port opens when models are loaded and what is stored has come back.
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s CMD ["bash", "-c", "</dev/tcp/127.0.0.1/7070"]
ENTRYPOINT ["lethe-server"]
# Loopback of the container's own network namespace: an edge shares it (deploy/compose.yaml). With `docker run --network host`
# the host's programs reach it.
CMD ["--model", "/usr/share/lethe/models/lethe-tiny", "--data", "/var/lib/lethe", "--erasure-ledger", "/var/lib/lethe-ledger", "--listen", "127.0.0.1:7070"]

# The CUDA tool kit comes from NVIDIA's image; everything else is Debian 12 as above. The runtime is linked statically.
FROM build AS cuda-build
COPY --from=nvidia/cuda:13.0.1-devel-ubuntu24.04 /usr/local/cuda /usr/local/cuda
RUN PATH=$PATH:/usr/local/cuda/bin cmake --preset cuda-release -DLETHE_BUILD_TESTS=OFF && cmake --build build/cuda-release

FROM cpu AS cuda
COPY --from=cuda-build /src/build/cuda-release/bin/ /usr/local/bin/
