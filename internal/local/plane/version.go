package plane

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/component-base/compatibility"
	baseversion "k8s.io/component-base/version"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

// tellVersion makes the servers name the Kubernetes release that they are. Without it they know only what a release
// build would have linked in, and clients refuse to parse that.
func tellVersion(c *app.Config) error {
	release, err := kubernetesRelease()
	if err != nil {
		return err
	}
	for _, v := range []*compatibility.EffectiveVersion{
		&c.KubeAPIs.ControlPlane.Generic.EffectiveVersion, &c.Aggregator.GenericConfig.EffectiveVersion,
		&c.ApiExtensions.GenericConfig.EffectiveVersion,
	} {
		*v = released{*v, release}
	}
	return nil
}

// kubernetesRelease returns the version of the Kubernetes module that this binary was built with, or, in a test binary,
// which lists no modules, the first release of its minor version.
func kubernetesRelease() (*version.Version, error) {
	build, ok := debug.ReadBuildInfo()
	if !ok || len(build.Deps) == 0 {
		return version.ParseSemantic(baseversion.DefaultKubeBinaryVersion + ".0")
	}
	for _, module := range build.Deps {
		if module.Path == "k8s.io/kubernetes" {
			return version.ParseSemantic(module.Version)
		}
	}
	return nil, errors.New("read build information: k8s.io/kubernetes is not listed")
}

type released struct {
	compatibility.EffectiveVersion
	release *version.Version
}

// Info implements compatibility.EffectiveVersion.
func (r released) Info() *apiversion.Info {
	info := *r.EffectiveVersion.Info()
	info.Major = fmt.Sprint(r.release.Major())
	info.Minor = fmt.Sprint(r.release.Minor())
	info.GitVersion = "v" + r.release.String()
	info.GitTreeState = "clean"
	if strings.HasPrefix(info.GitCommit, "$") {
		info.GitCommit = ""
	}
	return &info
}
