//go:build linux && e2e_cluster

package fabricated

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"syscall"
)

// nodeAddress is what kubelets give as their node's: they refuse loopback addresses, and one beside them on lo will do.
const nodeAddress = "10.77.0.1"

// addAddress gives lo another address, by a netlink message: programs that could do it may be missing.
func addAddress(text string) error {
	address, err := netip.ParseAddr(text)
	if err != nil {
		return err
	}
	fd, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, syscall.NETLINK_ROUTE)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer syscall.Close(fd)
	if err := syscall.Sendto(fd, addressMessage(address), 0,
		&syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}); err != nil {
		return os.NewSyscallError("sendto", err)
	}
	answer := make([]byte, 4096)
	n, _, err := syscall.Recvfrom(fd, answer, 0)
	if err != nil {
		return os.NewSyscallError("recvfrom", err)
	}
	messages, err := syscall.ParseNetlinkMessage(answer[:n])
	if err != nil {
		return err
	}
	for _, m := range messages {
		if m.Header.Type != syscall.NLMSG_ERROR || len(m.Data) < 4 {
			continue
		}
		code := syscall.Errno(-int32(binary.NativeEndian.Uint32(m.Data)))
		if code != 0 && code != syscall.EEXIST {
			return fmt.Errorf("add address %s to lo: %w", text, code)
		}
	}
	return nil
}

// addressMessage is RTM_NEWADDR for an IPv4 address of the first interface, with a mask of 32 bits.
func addressMessage(address netip.Addr) []byte {
	const attribute = syscall.SizeofRtAttr + 4
	const length = syscall.SizeofNlMsghdr + syscall.SizeofIfAddrmsg + 2*attribute
	order := binary.NativeEndian
	m := make([]byte, 0, length)
	m = order.AppendUint32(m, length)
	m = order.AppendUint16(m, syscall.RTM_NEWADDR)
	m = order.AppendUint16(m, syscall.NLM_F_REQUEST|syscall.NLM_F_ACK|syscall.NLM_F_CREATE|syscall.NLM_F_EXCL)
	m = order.AppendUint32(m, 1)             // sequence
	m = order.AppendUint32(m, 0)             // port
	m = append(m, syscall.AF_INET, 32, 0, 0) // family, mask, flags, scope
	m = order.AppendUint32(m, 1)             // lo is the first one
	for _, kind := range []uint16{syscall.IFA_LOCAL, syscall.IFA_ADDRESS} {
		m = order.AppendUint16(m, attribute)
		m = order.AppendUint16(m, kind)
		m = append(m, address.AsSlice()...)
	}
	return m
}
