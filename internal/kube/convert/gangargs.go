package convert

import (
	"github.com/tenon-project/tenon/api/config/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/gang"
)

// GangDefaults translates the arguments of the plugin Coscheduling, defaults filled in.
func GangDefaults(a *v1alpha1.CoschedulingArgs) gang.Settings {
	return gang.Settings{Policy: gang.MatchPolicy(a.DefaultMatchPolicy), Wait: a.DefaultTimeout.Duration}
}
