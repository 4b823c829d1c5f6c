package convert

import (
	"github.com/tenon-project/tenon/api/config/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/quota"
)

// QuotaConfig translates the arguments of the plugin ElasticQuota, defaults filled in. The manager divides with the
// same ones.
func QuotaConfig(a *v1alpha1.ElasticQuotaArgs) (quota.Config, quota.Rules) {
	c := quota.Config{ScaleMin: *a.EnableMinQuotaScale}
	c.DefaultMax = Amounts(a.DefaultQuotaGroupMax)
	r := quota.Rules{ByMax: !*a.EnableRuntimeQuota, LeafOnly: !*a.EnableCheckParentQuota}
	if a.MissingQuotaPolicy == v1alpha1.MissingQuotaReject {
		r.Missing = quota.MissingReject
	}
	return c, r
}
