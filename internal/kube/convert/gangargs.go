package convert

import (
	"time"

	"github.com/tenon-project/tenon/api/config/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/gang"
)

// GangDefaults translates the arguments of the plugin Coscheduling, defaults filled in.
func GangDefaults(a *v1alpha1.CoschedulingArgs) gang.Settings {
	return gang.Settings{
		Policy: gang.MatchPolicy(a.DefaultMatchPolicy), Wait: a.DefaultTimeout.Duration,
		Interrupted: gang.Interrupted(a.InterruptedGangs),
	}
}

// GangRules are the arguments of the plugin Coscheduling that hold for all gangs.
type GangRules struct {
	MaxOvertakes    int
	PreemptionDelay time.Duration
	// JoinsWholeGPUs: GPUs of gangs whose members all ask for whole ones are allocated jointly.
	JoinsWholeGPUs bool
}

// GangRulesOf translates the arguments of the plugin Coscheduling, defaults filled in.
func GangRulesOf(a *v1alpha1.CoschedulingArgs) GangRules {
	return GangRules{int(*a.MaxOvertakes), a.PreemptionDelay.Duration, *a.EnableJointGPUs}
}

// DefaultGangRules are those of a profile without arguments.
func DefaultGangRules() GangRules {
	var a v1alpha1.CoschedulingArgs
	a.SetDefaults()
	return GangRulesOf(&a)
}
