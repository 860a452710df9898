"""What a cluster does with the manifests of `k8s/`, as far as it can be done without one.

- `manifests`: overlays, rendered, and the pods in them;
- `pods`: what a kubelet makes of a container: arguments, environment, mounts, limits;
- `contain`, `seccomp`: runs a program as a container runtime would: in a read-only root of its own, as another user;
- `policies`: network policies, as rules that a pod's namespace keeps to;
- `site`: nodes, pods and a client as network namespaces, with the addresses that the manifests name.
"""
