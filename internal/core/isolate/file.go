package isolate

import "slices"

// File is one file of a machine as an agent finds it, beside what agents have recorded of it. Values that mean the same
// are written alike.
type File struct {
	// Now is the value that the file has, Want the one that it is to have.
	Now, Want string
	// Recorded: an agent has set the file. Then Original is the value before the first write, Before the one that the
	// last write replaced, Asked the one that it wrote, and Written the one that the file had after it. Some chips
	// choose of the CPUs that they are offered, and a crash leaves Before or Written. Without a record Original is Now.
	Recorded                         bool
	Original, Before, Asked, Written string
	// IsLate: a write shows some time later only, so it is not repeated.
	IsLate bool
	// IsLeft: the file was found to be another program's, or fixed by the kernel, and pods ask for the same since.
	IsLeft bool
}

// Step is what an agent does with a File.
type Step uint8

// Steps.
const (
	// Wait: the file stays as it is until it is looked at again.
	Wait Step = iota
	// Keep: the file has the value that it is to have.
	Keep
	// Yield: another program has set the file, which is its from now on.
	Yield
	// Rewrite: the file has its original value again. It is written once more, unless that happens again and again.
	Rewrite
	// Write: the file is to be written.
	Write
)

// IsForeign reports whether a File that is recorded has a value that no agent has left there.
func (f *File) IsForeign() bool {
	return f.Recorded && !slices.Contains([]string{f.Original, f.Asked, f.Written, f.Before}, f.Now)
}

// IsAsked reports whether the last write was of the value that the File is to have.
func (f *File) IsAsked() bool { return f.Recorded && f.Want == f.Asked }

// Next returns the step for a File. foreign is the answer of IsForeign: the record does not count then.
func (f *File) Next(foreign bool) Step {
	asked := f.IsAsked()
	switch {
	case asked && f.IsLate && f.Now != f.Want:
		return Wait
	case f.Now == f.Want && (asked || !f.Recorded || !f.IsLate), asked && f.Now == f.Written:
		return Keep
	case foreign:
		return Yield
	case asked && f.Now == f.Original:
		return Rewrite
	case f.IsLeft:
		return Wait
	}
	return Write
}
