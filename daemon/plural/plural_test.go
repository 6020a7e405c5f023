package plural

import "testing"

// TestCount checks that one thing, and only one, is in the singular.
func TestCount(t *testing.T) {
	t.Parallel()
	for want, got := range map[string]string{
		"0 servers": Count(0, "server"), "1 server": Count(1, "server"), "2 servers": Count(2, "server"),
		"1 entry": Count(1, "entry"), "2 entries": Count(2, "entry"),
		"1 process": Count(1, "process"), "12 processes": Count(12, "process"),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestDollars checks that only nothing is shown as nothing.
func TestDollars(t *testing.T) {
	for usd, want := range map[float64]string{
		0: "$0.00", 0.0018: "<$0.01", 0.005: "$0.01", 1.2: "$1.20", 1234.5: "$1234.50",
	} {
		if got := Dollars(usd); got != want {
			t.Errorf("%v is shown as %q, want %q", usd, got, want)
		}
	}
}

// TestSize checks that sizes are read and written in binary units, and nothing else is read.
func TestSize(t *testing.T) {
	for text, want := range map[string]Size{
		"64MiB": 64 << 20, "2GiB": 2 << 30, "1536MiB": 1536 << 20, "1TiB": 1 << 40, "7B": 7, "3KiB": 3 << 10,
	} {
		got, err := ParseSize(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%s: %d, %v, as a text %v; want %d", text, got, err, got, want)
		}
	}
	for _, text := range []string{"", "2", "GiB", "2GB", "2G", "-2GiB", "1.5GiB", "2GiBGiB", "9999999GiB", "2 GiB"} {
		if got, err := ParseSize(text); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}
