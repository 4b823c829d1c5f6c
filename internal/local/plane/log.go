package plane

import (
	"flag"
	"io"

	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
)

func logTo(w io.Writer) {
	// Each component applies its own, equal logging configuration.
	logsapi.ReapplyHandling = logsapi.ReapplyHandlingIgnoreUnchanged
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	if err := flags.Parse([]string{
		"-logtostderr=false", "-alsologtostderr=false", "-stderrthreshold=FATAL",
		"-one_output", // else an error is written once for each severity below it
	}); err != nil {
		panic("plane: klog lost a flag: " + err.Error())
	}
	klog.SetOutput(w)
}
