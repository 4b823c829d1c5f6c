#!/usr/bin/env bash
# Installs Tenon from this checkout on a cluster of kind: builds the images, loads them, and runs helm install.
#
#   kind.sh            a new cluster "tenon" with two workers
#   kind.sh NAME       the existing cluster of this name
#
# Needed: kind with Docker or Podman, kubectl, helm, Go. IMAGE is the node's image, with Kubernetes 1.33 or newer.
set -euo pipefail
cd "$(dirname "$0")/.."
for program in kind kubectl helm go; do
  command -v "$program" >/dev/null || { echo "$program is not installed" >&2; exit 1; }
done
name=${1:-tenon}
if [ $# = 0 ]; then
  kind create cluster --name "$name" ${IMAGE:+--image "$IMAGE"} --config - <<'END'
kind: Cluster
apiVersion: kind.x-k8s.io/v1alpha4
# Without the validator pods with CPUs of their own would start on all CPUs while the agent is away.
containerdConfigPatches:
- |-
  [plugins.'io.containerd.nri.v1.nri']
    disable = false
    [plugins.'io.containerd.nri.v1.nri'.default_validator]
      enable = true
nodes:
- role: control-plane
- role: worker
- role: worker
END
fi
programs="tenon-scheduler tenon-manager tenon-descheduler tenon-agent"
make images PROGRAMS="$programs" PLATFORMS="linux/$(go env GOARCH)" TAG=devel
for program in $programs; do
  kind load image-archive "bin/images/$program.tar" --name "$name"
done
context=kind-$name
kubectl --context "$context" create namespace tenon-system --dry-run=client -o yaml | kubectl --context "$context" apply -f -
helm upgrade --install tenon deploy/chart --kube-context "$context" --namespace tenon-system --set image.tag=devel
kubectl --context "$context" --namespace tenon-system rollout status deployment/tenon-scheduler --timeout 5m
echo "A pod with spec.schedulerName: tenon-scheduler is placed by Tenon. Why it waits: kubectl tenon explain pod/NAME"
