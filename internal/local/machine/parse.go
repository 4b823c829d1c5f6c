package machine

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/nearest"
	"github.com/tenon-project/tenon/internal/agent/host"
)

// MaxCount is the most nodes that one spec may ask for.
const MaxCount = 10_000

// Parse reads NAME[@KUBELET][=COUNT]: the value of the flag --machine. NAME is a preset or the path of a captured
// machine. KUBELET is a list of settings, see host.ParseKubelet, and the word follow; ",kubelet=" may replace "@",
// and "+" the commas of the list. Errors name what was not understood and what would be.
//
// What the settings leave open is filled in as the machine needs it, see settle. A machine on which the kubelet itself
// would not start, would panic or would never answer is refused.
func Parse(spec string) (Description, int, error) {
	d, count, err := parse(canonical(spec))
	if err != nil {
		return Description{}, 0, fmt.Errorf("machine %q: %w", spec, err)
	}
	return d, count, nil
}

func parse(spec string) (Description, int, error) {
	body, count, err := cutCount(spec)
	if err != nil {
		return Description{}, 0, err
	}
	name, settings, found := strings.Cut(body, "@")
	d, err := find(name)
	if err != nil {
		return Description{}, 0, err
	}
	d.Lasting = cmp.Or(d.capture, d.Name)
	if found {
		d.Lasting += "@" + settings
	}
	return d, count, d.configure(settings)
}

func (d *Description) configure(settings string) error {
	words, err := d.takeHugepages(strings.Split(settings, ","))
	if err != nil {
		return err
	}
	m, err := d.Topology()
	if err != nil {
		return err
	}
	words = complete(words)
	if i := slices.Index(words, follow); i >= 0 {
		d.Follow, words = true, slices.Delete(words, i, i+1)
	}
	if d.Kubelet, err = parseKubelet(strings.Join(words, ",")); err != nil {
		return err
	}
	d.applyDefaults(m)
	d.topology = m
	return d.check(m)
}

// canonical returns a spec with the settings behind "@" and separated by commas.
func canonical(spec string) string {
	if name, settings, ok := strings.Cut(spec, ",kubelet="); ok && !strings.Contains(name, "@") {
		spec = name + "@" + settings
	}
	name, settings, ok := strings.Cut(spec, "@")
	if !ok {
		return spec
	}
	return name + "@" + strings.ReplaceAll(settings, "+", ",")
}

// cutCount takes "=COUNT" off the end. "reserved=3" is a setting, "reserved=3=2" a setting and a count.
func cutCount(spec string) (string, int, error) {
	i := strings.LastIndexByte(spec, '=')
	if i < 0 {
		return spec, 1, nil
	}
	body, text := spec[:i], spec[i+1:]
	if at := strings.IndexByte(body, '@'); at >= 0 {
		last := body[max(at, strings.LastIndexByte(body, ','))+1:]
		if slices.Contains(host.KubeletKeys(), last) || isHugepageKey(last) {
			return spec, 1, nil
		}
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > MaxCount {
		return "", 0, fmt.Errorf("count %q: want a number from 1 to %d", text, MaxCount)
	}
	return body, n, nil
}

func find(name string) (Description, error) {
	var known []string
	for _, d := range Presets() {
		if d.Name == name {
			return d, nil
		}
		known = append(known, d.Name)
	}
	if _, err := os.Stat(name); err == nil && name != "" {
		return captured(name)
	}
	hint := ""
	if preset := nearest.Word(name, known); preset != "" {
		hint = fmt.Sprintf(" Did you mean %s?", preset)
	}
	return Description{}, fmt.Errorf("%q is not a preset (%s), an archive or a folder.%s", name,
		strings.Join(known, ", "), hint)
}

func captured(path string) (Description, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return Description{}, err
	}
	d := Description{
		Name: nodeName(filepath.Base(abs)), Summary: "captured machine " + path, arch: "amd64",
		capture: abs,
	}
	if err := d.read(); err != nil {
		return Description{}, err
	}
	d.arch = d.topology.Arch()
	return d, nil
}

func nodeName(base string) string {
	for _, suffix := range []string{".bz2", ".gz", ".tgz", ".tar"} {
		base = strings.TrimSuffix(base, suffix)
	}
	name := unfit.ReplaceAllString(strings.ToLower(base), "-")
	return cmp.Or(strings.Trim(name[:min(len(name), 50)], "-"), "machine")
}

var unfit = regexp.MustCompile(`[^a-z0-9]`)

func parseKubelet(settings string) (annotation.Kubelet, error) {
	k, err := host.ParseKubelet(settings)
	unknown, ok := errors.AsType[*host.UnknownSetting](err)
	if !ok {
		return k, err
	}
	err = &host.UnknownSetting{Setting: unknown.Setting, Also: []string{follow}}
	if known := nearest.Word(unknown.Setting, append(host.KubeletSettings(), follow)); known != "" {
		err = fmt.Errorf("%w. Did you mean %s?", err, known)
	}
	return k, err
}
