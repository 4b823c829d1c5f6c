package annotation

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Annotations of a Pod about its exclusive CPUs. The agent follows them where its flag --isolate-exclusive-cpus is set.
// The keys are CRI-O's.
const (
	// InterruptsKey is disable or enable: whether interrupts of devices leave the CPUs. Default: disable for LSE pods,
	// enable for LSR pods.
	InterruptsKey = "irq-load-balancing.crio.io"
	// SleepKey is how deep the CPUs may sleep: enable, disable (not at all) or max_latency:N, as deep as they wake up
	// from within N microseconds.
	SleepKey = "cpu-c-states.crio.io"
)

// Values of InterruptsKey and SleepKey.
const (
	wordEnable  = "enable"
	wordDisable = "disable"
	maxLatency  = "max_latency:"
)

// Tuning is what a pod asks of the machine beside its exclusive CPUs.
type Tuning struct {
	// Interrupts says whether interrupts leave its CPUs; InterruptsByClass without the annotation.
	Interrupts InterruptsWish
	// Latency is what the kernel's file pm_qos_resume_latency_us is to contain for them: 0 for any sleep, n/a for none,
	// or microseconds. "" without the annotation.
	Latency string
}

// InterruptsWish is whether interrupts leave the CPUs of a pod.
type InterruptsWish uint8

// Values of InterruptsWish.
const (
	InterruptsByClass InterruptsWish = iota
	InterruptsLeave
	InterruptsRemain
)

// ReadTuning reads both annotations of a pod. One that cannot be read counts as absent, and is in the error.
func ReadTuning(annotations map[string]string) (out Tuning, err error) {
	var errs []error
	if text, ok := annotations[InterruptsKey]; ok {
		var err error
		out.Interrupts, _, err = ParseInterrupts(text)
		errs = append(errs, err)
	}
	if text, ok := annotations[SleepKey]; ok {
		var err error
		out.Latency, _, err = ParseSleep(text)
		errs = append(errs, err)
	}
	return out, errors.Join(errs...)
}

// ParseInterrupts reads a value of InterruptsKey.
func ParseInterrupts(text string) (InterruptsWish, []Warning, error) {
	value, warnings, err := word(text, wordDisable, wordEnable)
	switch value {
	case wordDisable:
		return InterruptsLeave, warnings, err
	case wordEnable:
		return InterruptsRemain, warnings, err
	}
	return InterruptsByClass, warnings, err
}

// ParseSleep reads a value of SleepKey, and returns what the kernel's file is to contain.
func ParseSleep(text string) (latency string, warnings []Warning, err error) {
	const most = 1<<31 - 2 // the kernel refuses the next one
	if number, ok := strings.CutPrefix(text, maxLatency); ok {
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil || n < 0 || n > most {
			return "", nil, invalid(text, fmt.Sprintf("max_latency must be 0…%d microseconds", most))
		}
		if n == 0 {
			return "n/a", nil, nil // the kernel's 0 does not limit sleep
		}
		return strconv.FormatInt(n, 10), nil, nil
	}
	value, warnings, err := word(text, wordEnable, wordDisable)
	switch {
	case err != nil:
		return "", nil, invalid(text, "want enable, disable or max_latency:MICROSECONDS")
	case value == wordEnable:
		return "0", warnings, nil
	}
	return "n/a", warnings, nil
}
