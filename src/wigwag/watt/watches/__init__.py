"""What watt watches: `specs` as records, `watchset` as text, `resolvers` as objects; `watchers` opens the watches."""
