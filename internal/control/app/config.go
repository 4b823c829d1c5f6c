package app

import (
	"github.com/spf13/pflag"

	"github.com/tenon-project/tenon/api/config/strict"
	config "github.com/tenon-project/tenon/api/config/v1alpha1"
)

// CheckConfig finds everything wrong in a ManagerConfiguration, and returns the settings that it would give.
func CheckConfig(d *strict.Document) (strict.Settings, error) {
	var o Options
	err := o.apply(NewCommand().Flags(), d, "")
	return o.Settings, err
}

// configure reads the files that flags name. A flag wins over what they say.
func (o *Options) configure(fs *pflag.FlagSet, file, quotaArgs string) error {
	d, err := strict.ReadFile(file)
	if err != nil {
		return err
	}
	return o.apply(fs, d, quotaArgs)
}

func (o *Options) apply(fs *pflag.FlagSet, d *strict.Document, quotaArgs string) (err error) {
	var schema config.ManagerConfiguration
	if d != nil {
		problems := d.DecodeKind(config.ComponentAPIVersion, config.ManagerConfigurationKind, &schema)
		if err := problems.Err(); err != nil {
			return err
		}
	}
	if o.Quotas, err = readQuotaOptions(quotaArgs); err != nil {
		return err
	}
	o.Settings, err = strict.Apply(d, schema, strict.Flags{
		Given: fs.Changed,
		Set:   func(name, text string) error { return fs.Lookup(name).Value.Set(text) },
		Text:  func(name string) string { return fs.Lookup(name).Value.String() },
	})
	return err
}
