// Each release of Kubernetes has a file of its own beside this one, such as k133.mod.
module github.com/tenon-project/tenon/hack/tools/apiserver

go 1.24.0
