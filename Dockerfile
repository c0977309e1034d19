# Two images from one file:
#
#   docker build --target actor -t vedette-actor .        actors: no torch, small
#   docker build --target learner -t vedette-learner .    learner, TensorBoard, actors with convolutions; CPU
#   docker build --target learner -t vedette-learner --build-arg TORCH_INDEX=https://pypi.org/simple .    CUDA
#
# BASE may be pinned by digest, or be an image that brings its own torch: what it has is not installed again.
# EXTRA_PACKAGES are your own or an extra's: "gymnasium[box2d]", "ale-py opencv-python-headless", "my_pkg==1.2".
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS base
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
# One id everywhere: what a volume holds belongs to the same user on every host. Volumes that begin empty
# take these folders' owner and mode.
RUN useradd --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin vedette \
    && install -d -o vedette -g vedette -m 0755 /runs /config \
    && install -d -o vedette -g vedette -m 0700 /keys /keys/hosts /keys/hosts/actors

# The packages first, the project last: a change of the project installs no package again.
FROM base AS packages-actor
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /source
# No pip goes along: the environment is filled from outside.
RUN python -m venv --without-pip --system-site-packages /opt/venv
COPY deploy/requirements-actor.txt deploy/
RUN pip --python /opt/venv/bin/python install -r deploy/requirements-actor.txt
ARG EXTRA_PACKAGES=""
RUN if [ -n "$EXTRA_PACKAGES" ]; then pip --python /opt/venv/bin/python install \
    -c deploy/requirements-actor.txt $EXTRA_PACKAGES; fi

FROM base AS wheel
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY protocol protocol
COPY rl rl
COPY services services
COPY app app
RUN pip wheel --no-deps --wheel-dir /wheels .

FROM packages-actor AS build-actor
COPY --from=wheel /wheels /wheels
RUN pip --python /opt/venv/bin/python install --no-deps /wheels/vedette-*.whl

FROM base AS actor
COPY --from=build-actor /opt/venv /opt/venv
COPY deploy/hold deploy/healthy /usr/local/bin/
USER vedette
WORKDIR /runs
# A name of its own for every replica, the same when a container starts again; and what `healthy` looks at.
ENV VEDETTE_MANAGER_ID={host} VEDETTE_HEALTH_FILE=/tmp/acknowledged
ENTRYPOINT ["vedette"]
CMD ["actors"]

FROM packages-actor AS build-learner
COPY deploy/requirements-torch.txt deploy/requirements-learner.txt deploy/
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN pip --python /opt/venv/bin/python install --extra-index-url "$TORCH_INDEX" \
    -r deploy/requirements-torch.txt
RUN pip --python /opt/venv/bin/python install -r deploy/requirements-learner.txt
COPY --from=wheel /wheels /wheels
RUN pip --python /opt/venv/bin/python install --no-deps /wheels/vedette-*.whl

FROM base AS learner
COPY --from=build-learner /opt/venv /opt/venv
COPY deploy/hold deploy/healthy /usr/local/bin/
USER vedette
WORKDIR /runs
ENV VEDETTE_MANAGER_ID={host} VEDETTE_HEALTH_FILE=/tmp/acknowledged
EXPOSE 5555 5556 5557
ENTRYPOINT ["vedette"]
CMD ["learner"]
