// Package descheduler reads the configuration file of tenon-descheduler. It is of one of two kinds of
// descheduler/v1alpha2: Koordinator's DeschedulerConfiguration or the DeschedulerPolicy of the Kubernetes descheduler.
// Read makes the same Settings of both.
//
// Tags of a field say what its value may be, and Read holds to them. A tag has a text or the name of one in texts.json:
//
//	default  what counts where the file has no value, as JSON
//	allowed  the only values, with | between them
//	min max  the bounds of a number; for a duration, of its seconds
//	zero     the warning that a written 0 gets
//	unused   the warning that any value gets: the program does not read the field
//	refused  the error that any value gets
//	labels   the text is a label selector
package descheduler
