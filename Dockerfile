# Lethe's images. Build one with: docker build --target cpu -t lethe .   (or --target cuda)
# deploy/packages is the same script that deploy/quickstart runs, so an image holds nothing of its own making.

FROM debian:12-slim AS build
WORKDIR /src
COPY deploy/packages deploy/packages
RUN deploy/packages
COPY . .
RUN cmake --preset cpu-release -DLETHE_BUILD_TESTS=OFF && cmake --build build/cpu-release

FROM debian:12-slim AS cpu
RUN apt-get update && apt-get install -y --no-install-recommends libgrpc++1.51 libssl3 libsqlite3-0 && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --home-dir /var/lib/lethe --create-home lethe \
    && install -d -o lethe -m 0700 /var/lib/lethe-ledger
COPY --from=build /src/build/cpu-release/bin/ /usr/local/bin/
COPY --from=build /src/models/ /usr/share/lethe/models/
USER lethe
# The second is the erasure ledger: needed to start, no part of a backup of the first.
VOLUME /var/lib/lethe /var/lib/lethe-ledger
EXPOSE 7070
# Inside a container 0.0.0.0 is the container's own network. Publish the port on the host's loopback alone (-p 127.0.0.1:7070:7070), or give
# --tokens, --tls-cert and --tls-key and leave these flags out: docs/security.md.
ENTRYPOINT ["lethe-server", "--model", "/usr/share/lethe/models/lethe-tiny", "--data", "/var/lib/lethe", "--listen", "0.0.0.0:7070", \
            "--insecure-plaintext-beyond-loopback", "--insecure-anonymous-beyond-loopback", "--direct-beyond-loopback"]

# The CUDA tool kit comes from NVIDIA's image; everything else is Debian 12 as above. The runtime is linked statically.
FROM build AS cuda-build
COPY --from=nvidia/cuda:13.0.1-devel-ubuntu24.04 /usr/local/cuda /usr/local/cuda
RUN PATH=$PATH:/usr/local/cuda/bin cmake --preset cuda-release -DLETHE_BUILD_TESTS=OFF && cmake --build build/cuda-release

FROM cpu AS cuda
COPY --from=cuda-build /src/build/cuda-release/bin/ /usr/local/bin/
