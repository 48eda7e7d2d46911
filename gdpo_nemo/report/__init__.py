"""Tables, figures and verdicts, from run directories only."""
