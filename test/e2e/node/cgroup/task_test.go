//go:build e2e_cgroup

package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// taskMode is the first argument of a test binary that is to be a task in a group.
const taskMode = "live-as-a-task"

// task is a process of this binary that follows commands and ends when its pipe is closed.
type task struct {
	cmd  *exec.Cmd
	tell io.WriteCloser
	hear *bufio.Reader
}

// newTask starts a task in the group of the test.
func newTask() (*task, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	t := &task{cmd: exec.Command(self, taskMode)}
	t.cmd.Env = []string{"GOMAXPROCS=2"}
	t.cmd.Stderr = os.Stderr
	t.tell, err = t.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := t.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	t.hear = bufio.NewReader(out)
	if err := t.cmd.Start(); err != nil {
		return nil, err
	}
	_, err = t.say("hello")
	return t, err
}

func (t *task) pid() int { return t.cmd.Process.Pid }

// say gives an order and returns the task's answer.
func (t *task) say(order string) (string, error) {
	if _, err := fmt.Fprintln(t.tell, order); err != nil {
		return "", err
	}
	answer, err := t.hear.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("the task did not answer to %q: %w", order, err)
	}
	answer = strings.TrimSpace(answer)
	if text, failed := strings.CutPrefix(answer, "error: "); failed {
		return "", errors.New(text)
	}
	return answer, nil
}

// end kills the task and returns how it died.
func (t *task) end() syscall.WaitStatus {
	_ = t.cmd.Process.Kill() // it may be dead by now
	_ = t.cmd.Wait()
	return t.cmd.ProcessState.Sys().(syscall.WaitStatus)
}

// liveAsTask is the life of a task: orders come on its input.
func liveAsTask() {
	var kept [][]byte
	var children []io.Closer
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		order, argument, _ := strings.Cut(in.Text(), " ")
		answer := "ok"
		switch order {
		case "hello":
		case "use": // a number of bytes of memory
			n, err := strconv.Atoi(argument)
			if err != nil {
				answer = "error: " + err.Error()
				break
			}
			memory := make([]byte, n)
			for i := 0; i < n; i += 4096 {
				memory[i] = 1
			}
			kept = append(kept, memory)
		case "burn": // all CPUs, from now on
			for range 2 {
				go func() {
					for n := uint64(1); n != 0; n = n*6364136223846793005 | 1 { // never 0: the work is the point
					}
				}()
			}
		case "fork":
			child, err := newTask()
			if err != nil {
				answer = "error: " + err.Error()
				break
			}
			children = append(children, child.tell)
			answer = strconv.Itoa(child.pid())
			go func() { _ = child.cmd.Wait() }() // so that it does not remain as a zombie
		case "bursty": // 70 ms of CPU time at once every 400 ms, from now on
			go burstAgainAndAgain()
		case "storm": // packets, each of which makes the network card interrupt, from now on
			go func() {
				for {
					traffic(100)
				}
			}()
		case "periodic": // a number of periods of 1 ms
			n, err := strconv.Atoi(argument)
			if err != nil {
				answer = "error: " + err.Error()
				break
			}
			answer = lateness(n)
		default:
			answer = "error: unknown order"
		}
		fmt.Println(answer)
	}
	for _, c := range children {
		_ = c.Close()
	}
	_ = kept
}
