package directory

// Entries returns how many answers are kept.
func Entries(c *Client) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.entries)
}
