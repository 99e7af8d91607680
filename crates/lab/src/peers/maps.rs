//! Ordered maps in files: redb and fjall, both without syncs.

use std::path::Path;

use anyhow::{Context, Result};

use crate::ordered::Ordered;

const TABLE: redb::TableDefinition<'_, u64, u64> = redb::TableDefinition::new("map");

/// Creates the map of a name in a folder, if it is one of these.
pub fn map(name: &str, folder: &Path) -> Result<Option<Box<dyn Ordered>>> {
    Ok(match name {
        "redb" => Some(Box::new(Redb(redb::Database::create(folder.join("map.redb"))?))),
        "fjall" => {
            let database = fjall::Database::builder(folder.join("map.fjall")).open()?;
            let keyspace = database.keyspace("map", fjall::KeyspaceCreateOptions::default)?;
            Some(Box::new(Fjall { keyspace, _database: database }))
        }
        _ => None,
    })
}

/// Each insertion is a transaction, and none is durable.
struct Redb(redb::Database);

impl Ordered for Redb {
    fn insert(&mut self, key: u64, value: u64) -> Result<()> {
        let mut transaction = self.0.begin_write()?;
        transaction.set_durability(redb::Durability::None)?;
        transaction.open_table(TABLE)?.insert(key, value)?;
        Ok(transaction.commit()?)
    }

    fn get(&self, key: u64) -> Result<Option<u64>> {
        use redb::ReadableDatabase;
        let table = self.0.begin_read()?.open_table(TABLE)?;
        Ok(table.get(key)?.map(|value| value.value()))
    }
}

/// Its journal is written at each insertion, and not synced.
struct Fjall {
    keyspace: fjall::Keyspace,
    _database: fjall::Database,
}

impl Ordered for Fjall {
    fn insert(&mut self, key: u64, value: u64) -> Result<()> {
        // Big-endian keys have the order of the integers.
        Ok(self.keyspace.insert(key.to_be_bytes(), value.to_le_bytes())?)
    }

    fn get(&self, key: u64) -> Result<Option<u64>> {
        let value = self.keyspace.get(key.to_be_bytes())?;
        value.map(|value| Ok(u64::from_le_bytes(value[..].try_into().context("a value of other length")?))).transpose()
    }
}
