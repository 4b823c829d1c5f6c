//go:build linux && e2e_install

package installed

import (
	"os"
	"testing"

	"github.com/tenon-project/tenon/internal/testkit/page"
	"github.com/tenon-project/tenon/test/e2e/node/stage"
)

// plays returns a case that runs the commands of the pages as a reader with the rights of an administrator.
func (c *cluster) plays(scene page.Scene) func(*testing.T) {
	return func(t *testing.T) {
		page.Play(t, scene, stage.Binary("tenon"), "KUBECONFIG="+c.kubeconfig, "HELM="+os.Getenv(helmVariable))
	}
}
