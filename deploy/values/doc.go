// Package values is the settings of the chart in deploy/chart, as Go types. hack/chart writes the chart's values.yaml
// and values.schema.json from them: the comment of a field describes its key, its tags are the default and what is
// allowed.
package values
